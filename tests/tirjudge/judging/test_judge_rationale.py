"""The rationale judge through `tirjudge judge`: the result row contains reasons and strength."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tirjudge.cli import app

REASONS = ["A omits the name", "B has no hashtags"]


def answer(box: str) -> dict[str, Any]:
    listed = "\n".join(f"- {reason}" for reason in REASONS)
    result = f"List of reasons:\n{listed}\nFinal assessment result:\n\\boxed{{{box}}}"
    return chat(f"<RESULT_START>\n{result}\n<RESULT_END>")


def judged(folder: Path, server: EndpointServer, *options: str) -> dict[str, Any]:
    row = {"prompt": "Write ads.", "responses": ["#ads", "Tips!"], "label": "B>>A", "points": ["A is bad"]}
    rows, output = folder / "rows.jsonl", folder / "out.jsonl"
    rows.write_text(json.dumps(row) + "\n")
    command = ["judge", str(rows), "--output", str(output), "--format", "rationale", "--model", "m"]
    command += ["--base-url", server.url, "--column", "checklist=points", *options]
    done = CliRunner().invoke(app, command)
    (line,) = output.read_text().splitlines()
    row = json.loads(line)
    assert done.exit_code == (0 if row["stop"] == "verdict" else 1), done.output
    return row


@pytest.mark.parametrize(
    ("box", "verdict", "correct", "strength"),
    [("B>>A", "B", 1.0, 2), ("A>B", "A", 0.0, 1), ("A=B", "tie", 0.5, 0)],
)
def test_the_reasons_are_in_the_row(
    tmp_path: Path, server: EndpointServer, box: str, verdict: str, correct: float, strength: int
) -> None:
    server.answers(answer(box))
    row = judged(tmp_path, server, "--order", "given")
    assert (row["format"], row["verdict"], row["correct"]) == ("rationale", verdict, correct)
    assert row["views"][0]["verdict"]["parsed"] == {"reasons": REASONS, "strength": strength}
    assert len(server.asked) == 1, "judging should not call the MetaJudge"


def test_an_answer_without_a_verdict_has_a_reason(tmp_path: Path, server: EndpointServer) -> None:
    server.answers(chat("Response B is better."))
    row = judged(tmp_path, server)
    assert (row["verdict"], row["stop"]) == (None, "malformed")
    assert row["detail"] == "no <RESULT_START> with a <RESULT_END> behind it"
