"""Runs without a single verdict: the option that helps, and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import judge, pairs, results, through, write_rows


@pytest.mark.parametrize(
    ("answer", "arguments", "words"),
    [
        (chat("The first one is better."), ("--no-tools",), ["malformed (no <preference>", "--format"]),
        (chat("So far", finish="length"), ("--no-tools",), ["token_budget", "--max-tokens"]),
        (chat("```python\nprint(1)\n```\n"), ("--max-tool-calls", "1"), ["turn_budget", "--max-tool-calls"]),
    ],
)
def test_a_run_without_a_verdict_fails_and_says_how_most_rows_ended(
    tmp_path: Path,
    endpoint: EndpointServer,
    answer: dict[str, Any],
    arguments: tuple[str, ...],
    words: list[str],
) -> None:
    endpoint.script = lambda body: answer
    write_rows(tmp_path / "rows.jsonl", pairs(3))
    asked = []
    # The second run finds all rows judged, and is a failure as well.
    for _ in range(2):
        run = judge(tmp_path, "rows.jsonl", *arguments, *through(endpoint), code=1)
        reason = run.stderr.splitlines()[-1]
        assert reason.startswith("tirjudge judge: no row got a verdict: ")
        assert all(word in reason for word in words)
        asked.append(len(endpoint.asked))
    assert asked[0] == asked[1] >= 3
    row = results(tmp_path / "rows.verdicts.jsonl")[0]
    assert (row["verdict"], row["correct"]) == (None, 0.0)
