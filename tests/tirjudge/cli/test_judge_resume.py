"""`tirjudge judge` when killed, interrupted or started twice: no row is lost, judged twice or overwritten."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from examples.miniature import TRAINED
from tests.command import TIRJUDGE, kill_at
from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import judge, pairs, results, through, write_rows
from tirjudge.judging import judge_model


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost_or_judged_twice(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.delay = 0.02
    rows = write_rows(tmp_path / "rows.jsonl", pairs(30))
    out = tmp_path / "rows.verdicts.jsonl"
    command = [TIRJUDGE, "judge", str(rows), "--no-tools", "--concurrency", "3", *through(endpoint)]
    draw = random.Random(7)
    kept: set[str] = set()
    for _ in range(2):
        goal = len(kept) + draw.randrange(1, 14)
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        kill_at(process, out, goal, lambda: draw.uniform(0, 0.01))
        whole = out.read_bytes()
        before, kept = kept, {json.loads(line)["id"] for line in whole.splitlines()}
        assert before < kept
        with out.open("ab") as file:  # a torn line, as a kill during a write leaves it
            file.write(whole.splitlines()[0][: draw.randrange(1, 200)])
    finished = judge(tmp_path, *command[2:], code=0)
    assert sorted(row["id"] for row in results(out)) == sorted(row["id"] for row in pairs(30))
    assert len(endpoint.asked) <= 30 + 2 * 3
    assert "judged    30 rows" in finished.stdout
    asked = len(endpoint.asked)
    again = judge(tmp_path, *command[2:])
    assert (again.returncode, len(endpoint.asked)) == (0, asked)
    assert again.stdout.splitlines()[:3] == finished.stdout.splitlines()[:3]


def test_an_interrupt_says_how_to_resume(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.delay = 0.02
    write_rows(tmp_path / "rows.jsonl", pairs(500))
    command = [TIRJUDGE, "judge", "rows.jsonl", "--no-tools", "--concurrency", "2", *through(endpoint)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    out = tmp_path / "rows.verdicts.jsonl"
    while not out.exists() or not out.read_bytes():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "tirjudge judge: interrupted; the same command resumes" in error
    assert "Traceback" not in error


def test_other_settings_are_refused_and_named(tmp_path: Path, endpoint: EndpointServer) -> None:
    assert judge(tmp_path, pairs(1), "--no-tools", *through(endpoint)).returncode == 0
    before = (tmp_path / "rows.verdicts.jsonl").read_bytes()
    run = judge(tmp_path, "rows.jsonl", "--no-tools", "--temperature", "0.5", *through(endpoint), code=2)
    assert "other settings (temperature was 0.0 and is now 0.5)" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert (tmp_path / "rows.verdicts.jsonl").read_bytes() == before
    options = ("--no-tools", "--temperature", "0.5", "--overwrite", *through(endpoint))
    assert judge(tmp_path, "rows.jsonl", *options).returncode == 0
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 1


def test_overwrite_keeps_all_until_the_first_new_row(tmp_path: Path, endpoint: EndpointServer) -> None:
    """An earlier run with a failed row stays whole while starts of `--overwrite` fail."""
    write_rows(tmp_path / "rows.jsonl", [*pairs(2), {"prompt": "No response."}])
    assert judge(tmp_path, "rows.jsonl", "--no-tools", *through(endpoint)).returncode == 1
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(before) == 5
    again = ("rows.jsonl", "--overwrite", "--temperature", "0.5", *through(endpoint))
    no_sandbox = ("--backend", "remote", "--backend-option", "url=http://127.0.0.1:9")
    no_model = ("--no-tools", "--tier", "completions", "--tokenizer", "./missing")
    for more, code in ((no_sandbox, 2), (no_model, 2)):
        run = judge(tmp_path, *again, *more)
        assert run.returncode == code, run.stderr
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    endpoint.script = lambda body: failure(401, "no such key")
    run = judge(tmp_path, *again, "--no-tools")
    assert "no row got a verdict" in run.stderr
    failed = tmp_path / "rows.verdicts.jsonl.failed.jsonl"
    assert "no such key" in failed.read_text()
    assert "No response" not in failed.read_text()
    kept = [path for path in before if path != failed]
    assert {path: path.read_bytes() for path in kept} == {path: before[path] for path in kept}
    endpoint.script = lambda body: chat("<preference>A</preference>")
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    assert judge(tmp_path, *again, "--no-tools").returncode == 0
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 1
    settings = json.loads((tmp_path / "rows.verdicts.jsonl.settings.json").read_text())["settings"]
    assert settings["temperature"] == 0.5
    assert len(results(tmp_path / "rows.verdicts.jsonl.calls.jsonl")) == 1
    assert not failed.exists()


def test_rows_without_ids_that_have_moved_are_not_judged_again(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    """Behind a new first row, and later with labels and in the opposite order, each has its result."""
    endpoint.script = lambda body: chat("<preference>A</preference>")
    rows = [{name: value for name, value in row.items() if name not in ("id", "label")} for row in pairs(3)]
    arguments = ("rows.jsonl", "--no-tools", "--order", "given", *through(endpoint))
    write_rows(tmp_path / "rows.jsonl", rows)
    assert judge(tmp_path, *arguments).returncode == 0
    before = results(tmp_path / "rows.verdicts.jsonl")
    write_rows(tmp_path / "rows.jsonl", [{**rows[0], "prompt": "new"}, *rows])
    run = judge(tmp_path, *arguments, code=1)
    assert "rows.jsonl:1: it was judged with another prompt or responses" in run.stderr
    assert "rows with ids may move" in run.stderr
    assert len(endpoint.asked) == 3
    assert results(tmp_path / "rows.verdicts.jsonl") == before
    write_rows(tmp_path / "rows.jsonl", [{**row, "label": "A"} for row in reversed(rows)])
    run = judge(tmp_path, *arguments, code=0)
    assert len(endpoint.asked) == 3
    assert [row["correct"] for row in results(tmp_path / "rows.verdicts.jsonl")] == [True] * 3


def test_equal_rows_of_an_interrupted_run_are_all_judged(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<preference>A</preference>")
    row = {name: value for name, value in pairs(1)[0].items() if name != "id"}
    write_rows(tmp_path / "rows.jsonl", [row] * 3)
    arguments = ("rows.jsonl", "--no-tools", *through(endpoint))
    assert judge(tmp_path, *arguments).returncode == 0
    path = tmp_path / "rows.verdicts.jsonl"
    kept = next(line for line in path.read_text().splitlines(keepends=True) if '"line-3"' in line)
    path.write_text(kept + "\n")
    assert judge(tmp_path, *arguments).returncode == 0
    assert sorted(row["id"] for row in results(path)) == ["line-1", "line-2", "line-3"]


def test_results_that_lack_their_settings_or_a_digest_are_refused_in_one_line(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = lambda body: chat("<preference>A</preference>")
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    arguments = ("rows.jsonl", "--no-tools", *through(endpoint))
    assert judge(tmp_path, *arguments).returncode == 0
    path = tmp_path / "rows.verdicts.jsonl"
    settings = path.with_name("rows.verdicts.jsonl.settings.json")
    settings.rename(tmp_path / "elsewhere.json")
    run = judge(tmp_path, *arguments)
    assert (run.returncode, "lacks its rows.verdicts.jsonl.settings.json" in run.stderr) == (2, True)
    (tmp_path / "elsewhere.json").rename(settings)
    row = json.loads(path.read_text())
    del row["digest"]
    path.write_text(json.dumps(row) + "\n")
    run = judge(tmp_path, *arguments, code=2)
    assert run.stderr.count("\n") == 1
    assert "a row has no id or no digest" in run.stderr
    for damage in (
        {"views": None},
        {"jury": [1]},
        {"criteria": [1]},
        {"prompt_tokens": None},
        {"verdict": 5},
    ):
        path.write_text(json.dumps({**row, "digest": "d", **damage}) + "\n")
        run = judge(tmp_path, *arguments, code=2)
        assert "row 1 of the result file: not a row that tirjudge judge writes" in run.stderr


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (401, None, "set the key in TIRJUDGE_API_KEY or OPENAI_API_KEY"),
        (403, None, "the key may not use this model"),
        (404, None, "check the base URL (it usually ends in /v1) and the model's name"),
        (429, "insufficient_quota", ""),
    ],
)
def test_an_endpoint_that_refuses_every_request_ends_the_run_at_once(
    tmp_path: Path, endpoint: EndpointServer, status: int, code: str | None, advice: str
) -> None:
    endpoint.script = lambda body: failure(status, "the server's own words", code=code)
    run = judge(tmp_path, pairs(9), "--no-tools", *through(endpoint))
    # The first two rows are judged before any others, and a harmless question tells a refused key from a row.
    rows = [body for body in endpoint.bodies if "Question" in str(body["messages"])]
    assert (run.returncode, len(rows) <= 2, len(endpoint.asked) <= 3) == (1, True, True)
    (stopped,) = [line for line in run.stderr.splitlines() if line.startswith("stopped: ")]
    assert f"the endpoint refuses every request: {endpoint.url}/v1/chat/completions: {status} " in stopped
    assert "the server's own words" in stopped
    assert advice in stopped


def test_rows_that_fail_at_an_unreachable_endpoint_are_judged_by_a_later_run(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    write_rows(tmp_path / "rows.jsonl", pairs(30))
    endpoint.script = lambda body: failure(400, "bad request of sk-secret-123")
    arguments = ("rows.jsonl", "--no-tools", "--give-up-after", "5", "--concurrency", "2", *through(endpoint))
    run = judge(tmp_path, *arguments, key="sk-secret-123", code=1)
    assert "gave up after 5 consecutive failures" in run.stderr
    assert "generator_down" in run.stderr
    assert results(tmp_path / "rows.verdicts.jsonl") == []
    assert len(endpoint.asked) <= 7
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "sk-secret-123" not in written + run.stdout + run.stderr
    endpoint.script = lambda body: chat("<preference>A</preference>")
    run = judge(tmp_path, *arguments, code=0)
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 30
    assert not (tmp_path / "rows.verdicts.jsonl.failed.jsonl").exists()


def test_a_finished_run_does_not_load_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to print the summary, nor for a row that cannot be read; a new row loads it."""
    words = ("rows.jsonl", "--model", str(TRAINED), "--max-tokens", "20", "--no-tools", "--json")
    write_rows(tmp_path / "rows.jsonl", pairs(1))
    first = judge(tmp_path, *words)
    opened: list[str] = []
    real = judge_model.open_generator

    def watched(name: str, *arguments: Any, **options: Any) -> Any:
        opened.append(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(judge_model, "open_generator", watched)
    again = judge(tmp_path, *words)
    assert again.returncode == first.returncode
    assert {**json.loads(again.stdout), "seconds": 0} == {**json.loads(first.stdout), "seconds": 0}
    assert not opened
    write_rows(tmp_path / "rows.jsonl", pairs(2))
    judge(tmp_path, *words)
    assert len(opened) == 1
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 2
