"""`tirjudge checklist`: adds a checklist to every row of HelpSteer3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tirjudge.cli import app

COLUMNS = ("prompt=context", "response_a=response1", "response_b=response2")


def row(name: str, **changes: Any) -> dict[str, Any]:
    people = [
        {"score": -2, "reasoning": f"@Response 1 {name}", "feedback1": "Polite.", "feedback2": "Rude."},
        {"score": -1, "reasoning": "Shorter.", "feedback1": "", "feedback2": None},
    ]
    conversation = [{"role": "user", "content": "Hi"}]
    fields = {"context": conversation, "response1": "a", "response2": "b", "individual_preference": people}
    return fields | changes


def claims(*points: str) -> dict[str, Any]:
    listed = "\n".join(f"- C{number}: {point}" for number, point in enumerate(points, 1))
    result = f"CLAIM_COUNT={len(points)}\nCLAIMS:\n{listed}\nIGNORED_SUMMARY:\n- Polite. (Reason: vague)"
    return chat(f"<RESULT_START>\n{result}\n<RESULT_END>")


def asked(body: dict[str, Any]) -> str:
    return body["messages"][0]["content"]


def decompose(body: dict[str, Any]) -> Any:
    return claims("one") if "short" in asked(body) else claims("one", "two", "three")


def run(folder: Path, server: EndpointServer, *rows: Any, options: tuple[str, ...] = ()) -> Result:
    (folder / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    command = ["checklist", str(folder / "rows.jsonl"), "--output", str(folder / "out.jsonl"), "--model", "m"]
    command += [word for column in COLUMNS for word in ("--column", column)]
    return CliRunner().invoke(app, [*command, "--base-url", server.url, *options])


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_rows_gain_a_checklist_of_three_to_seven_points(tmp_path: Path, server: EndpointServer) -> None:
    server.script = decompose
    done = run(tmp_path, server, row("is wrong"), row("is short"))
    assert done.exit_code == 0, done.output
    assert written(tmp_path) == [row("is wrong") | {"checklist": ["one", "two", "three"]}]
    assert "1 checklists, 1 too short or too long, 0 rows failed" in done.stderr
    again = run(tmp_path, server, row("is wrong"), row("is short"), options=("--json",))
    assert json.loads(again.stdout) == {
        "output": str(tmp_path / "out.jsonl"),
        "checklists": 1,
        "too_short_or_too_long": 1,
        "failed": 0,
    }
    (question,) = (text for text in map(asked, server.bodies) if "is wrong" in text)
    assert "[Brief Evaluation Summary]Evaluator 1: @Response 1 is wrong\nEvaluator 2: Shorter.\n" in question
    evaluation = "Evaluator 1 on Response 1: Polite.\nEvaluator 1 on Response 2: Rude."
    assert f"\n[Evaluation Content]{evaluation}\n<INPUT END>" in question


def test_the_same_command_asks_nothing_twice(tmp_path: Path, server: EndpointServer) -> None:
    server.script = decompose
    run(tmp_path, server, row("is wrong"))
    before = written(tmp_path)
    server.asked.clear()
    assert run(tmp_path, server, row("is wrong"), row("is short"), options=("--at-least", "1")).exit_code == 0
    assert len(server.asked) == 1
    assert [one["checklist"] for one in written(tmp_path)] == [before[0]["checklist"], ["one"]]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (row("x", individual_preference=[]), "the remarks give no reasons for a preference: they are empty"),
        (row("x", individual_preference=[3]), "remarks must be texts, or objects"),
        ({"context": "q", "response1": "a", "response2": "b"}, "no column 'individual_preference'"),
        (row("x", response2=None), "response B is missing"),
    ],
)
def test_an_unusable_row_is_one_line(tmp_path: Path, server: EndpointServer, one: Any, reason: str) -> None:
    server.script = decompose
    done = run(tmp_path, server, one, row("is wrong"))
    assert done.exit_code == 1
    assert f"rows.jsonl:1: {reason}" in done.stderr
    assert len(written(tmp_path)) == 1, "the other rows are processed"


def test_an_unreadable_answer_gives_no_checklist(tmp_path: Path, server: EndpointServer) -> None:
    server.answers(chat("Here you go: one, two, three."))
    done = run(tmp_path, server, row("is wrong"))
    assert done.exit_code == 1
    assert "rows.jsonl:1: the answer cannot be read: no <RESULT_START>" in done.stderr
    assert written(tmp_path) == []


def test_a_refused_key_is_one_line(tmp_path: Path, server: EndpointServer) -> None:
    server.answers(failure(401, "bad key"))
    done = run(tmp_path, server, row("is wrong"))
    assert done.exit_code == 2
    assert done.stderr.startswith("tirjudge checklist: m refuses all questions: ")


def test_remarks_may_be_plain_texts(tmp_path: Path, server: EndpointServer) -> None:
    server.script = decompose
    done = run(tmp_path, server, row("x", why=["A lies"]), options=("--remarks", "why"))
    assert done.exit_code == 0, done.output
    assert "Summary]Evaluator 1: A lies\n[Evaluation Content]\n" in asked(server.bodies[0])
