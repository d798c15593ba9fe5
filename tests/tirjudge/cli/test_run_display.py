"""The progress of `tirjudge judge` while an endpoint fails or hangs: retries, waiting, accuracy and cost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import Result

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import command, judge, pairs, through, write_rows
from tirjudge.cli import run_display
from tirjudge.generation.endpoint import http

VERDICT = chat("<preference>A</preference>")


def run_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, code: int | None = None
) -> Result:
    """Run in this process, whose intervals a test can shorten; standard error is no terminal."""
    monkeypatch.chdir(folder)
    return command("judge", "rows.jsonl", "--no-tools", "--order", "given", *arguments, code=code)


def test_the_first_retry_is_reported_at_once_and_the_summary_counts_them(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    endpoint.answers(failure(500, "out of memory"), failure(500, "out of memory"), VERDICT)
    run = judge(tmp_path, "rows.jsonl", "--no-tools", *through(endpoint), code=0)
    said = [line for line in run.stderr.splitlines() if "retrying" in line]
    assert len(said) == 1
    assert re.search(
        rf"{endpoint.url}/v1: 500 Internal Server Error: out of memory; retrying in 0\.\d s "
        r"\(attempt 1 of 8 failed\); --timeout and --retries",
        said[0],
    )
    assert "retries   2 requests were repeated in this run" in run.stdout


@pytest.mark.slow
def test_an_endpoint_that_hangs_is_seen_while_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointServer
) -> None:
    monkeypatch.setattr(run_display, "SECONDS", 0.3)
    monkeypatch.setattr(run_display, "_LONG", 0.1)
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.01)
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    endpoint.delay = 60.0
    run = run_here(tmp_path, monkeypatch, *through(endpoint), "--timeout", "1", "--retries", "1", code=1)
    ticks = [line for line in run.stderr.splitlines() if line.startswith("0 of 1 row,")]
    assert any("1 unanswered, the first for" in line for line in ticks), ticks
    assert any("1 retry (timed out: no answer within 1 s)" in line for line in ticks)
    assert "timed out: no answer within 1 s (2 attempts)" in run.stderr


@pytest.mark.slow
def test_piped_progress_shows_accuracy_failures_and_cost_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointServer
) -> None:
    """Nine rows: four right, four wrong, one refused; the answers take long enough for several lines."""
    monkeypatch.setattr(run_display, "SECONDS", 0.2)
    rows = [row | {"label": n % 2} for n, row in enumerate(pairs(8))]
    write_rows(tmp_path / "rows.jsonl", [*rows, {"id": "bad", "prompt": "refuse", "responses": ["x", "y"]}])
    endpoint.delay = 0.3
    endpoint.script = lambda body: (
        failure(422, "no") if "refuse" in body["messages"][0]["content"] else VERDICT
    )
    prices = ("--price-in", "1000", "--price-out", "1000", "--concurrency", "1")
    run = run_here(tmp_path, monkeypatch, *through(endpoint), *prices, code=1)
    ticks = [line for line in run.stderr.splitlines() if re.match(r"\d of 9 rows", line)]
    assert any(re.search(r"50\.0% right of [2468], cost 0\.0\d+", line) for line in ticks), ticks
    assert "cost      0.0800 for 56 tokens read, 24 written" in run.stdout


def test_an_endpoint_that_is_down_is_one_line_and_not_one_for_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.01)
    write_rows(tmp_path / "rows.jsonl", pairs(12))
    nobody = ("--model", "any", "--base-url", "http://127.0.0.1:9/v1", "--retries", "0")
    run = run_here(tmp_path, monkeypatch, *nobody, code=1)
    said = [line for line in run.stderr.splitlines() if line.startswith("rows.jsonl:")]
    assert len(said) == 2
    assert said[1].endswith(
        "and further rows that fail for the same reason are in rows.verdicts.jsonl.failed.jsonl"
    )
    # Nothing was judged: nothing is said about ties, programs, tokens and calls.
    names = [line.split()[0] for line in run.stdout.splitlines()]
    assert [name for name in names if name in ("ties", "programs", "tokens", "calls", "accuracy")] == []


def test_rows_that_no_program_decided_have_no_winner_where_only_decided_rows_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointServer
) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"prompt": f"p{n}", "left": "x", "right": "y"} for n in range(4)])
    endpoint.script = lambda body: chat("<preference>A</preference>")
    words = ("--column", "responses=left,right", "--tools", *through(endpoint))
    run = run_here(tmp_path, monkeypatch, *words, "--undecided", "tie", "--min-win-rate", "left=0.5", code=1)
    assert "\nwinner" not in run.stdout
    assert "no program decided a row, and --min-win-rate is left=0.5" in run.stderr
    run = run_here(tmp_path, monkeypatch, *words, "--output", "guessed.jsonl")
    assert "\nwinner" in run.stdout


@pytest.mark.parametrize(
    ("least", "code"), [("left=0.75", 0), ("left=0.76", 1), ("nobody=0", 1), ("left", 2)]
)
def test_a_least_win_rate_compares_the_point(
    least: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointServer
) -> None:
    """Three rows of four are won by the first column."""
    rows = [{"prompt": f"p{n}", "left": "x", "right": "y"} for n in range(4)]
    write_rows(tmp_path / "rows.jsonl", rows)
    endpoint.script = lambda body: chat(f"<preference>{'B' if 'p3' in str(body) else 'A'}</preference>")
    words = ("--column", "responses=left,right", "--min-win-rate", least)
    run = run_here(tmp_path, monkeypatch, *words, *through(endpoint))
    assert run.exit_code == code, run.output
    if code:
        assert {"left=0.76": "is 75.0%", "nobody=0": "only left, right", "left": "give NAME=SHARE"}[
            least
        ] in run.stderr
