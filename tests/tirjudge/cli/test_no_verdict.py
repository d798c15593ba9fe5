"""Runs without a single verdict: the reason, the option that helps, and the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import pairs, through, write_rows
from tirjudge.cli import app


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs `tirjudge judge` on three pairs in a folder of its own."""
    write_rows(tmp_path / "rows.jsonl", pairs(3))
    monkeypatch.chdir(tmp_path)

    def run(endpoint: EndpointServer, *arguments: str) -> Result:
        words = ["judge", "rows.jsonl", *arguments, *through(endpoint)]
        return CliRunner().invoke(app, words, env={"NO_COLOR": "1"})

    return run


def reason(run: Result) -> str:
    """Return the explanation, which is the last line on standard error."""
    line = run.stderr.splitlines()[-1]
    assert line.startswith("tirjudge judge: no row got a verdict: ")
    return line


@pytest.mark.parametrize(
    ("answer", "arguments", "words"),
    [
        (chat("The first one is better."), ("--no-tools",), ["malformed (no <preference>", "--format"]),
        (chat("So far", finish="length"), ("--no-tools",), ["token_budget", "--max-tokens"]),
        (chat("```python\nprint(1)\n```\n"), ("--max-tool-calls", "1"), ["turn_budget", "--max-tool-calls"]),
        (failure(401, "Incorrect API key provided."), ("--no-tools",), ["Incorrect", "TIRJUDGE_API_KEY"]),
    ],
)
def test_a_run_without_a_verdict_fails_and_says_how_most_rows_ended(
    judge: Callable[..., Result],
    endpoint: EndpointServer,
    answer: dict[str, Any],
    arguments: tuple[str, ...],
    words: list[str],
) -> None:
    endpoint.script = lambda body: answer
    run = judge(endpoint, *arguments)
    assert run.exit_code == 1, run.output
    for word in words:
        assert word in reason(run)


def test_a_finished_run_without_a_verdict_stays_a_failure(
    judge: Callable[..., Result], endpoint: EndpointServer
) -> None:
    endpoint.script = lambda body: chat("I cannot say.")
    assert judge(endpoint, "--no-tools").exit_code == 1
    asked = len(endpoint.bodies)
    again = judge(endpoint, "--no-tools")
    assert again.exit_code == 1
    assert "--format" in reason(again)
    assert len(endpoint.bodies) == asked
