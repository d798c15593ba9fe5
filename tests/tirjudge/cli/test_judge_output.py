"""`tirjudge judge --output -`: result rows on standard output, everything else on standard error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import command, judge, pairs, through, write_rows


def test_rows_go_to_standard_output_and_the_summary_does_not(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = lambda body: chat("é <preference>A</preference>")
    half_a_character = pairs(1)[0] | {"id": "q\ud83d"}
    rows = [*pairs(2), half_a_character, {"prompt": "no responses"}]
    write_rows(tmp_path / "rows.jsonl", rows)
    run = judge(
        tmp_path, "rows.jsonl", "--output", "-", "--order", "both", "--no-tools", *through(endpoint), code=1
    )
    judged = [json.loads(line) for line in run.stdout.splitlines()]
    assert sorted(row["id"] for row in judged) == ["p0", "p1", "q\ud83d"]
    assert [row["verdict"] for row in judged] == ["tie"] * 3
    assert [[view["order"] for view in row["views"]] for row in judged] == [[[0, 1], [1, 0]]] * 3
    assert "judged    3 rows, 3 with a verdict" in run.stderr
    assert "failed    1 row" in run.stderr
    assert "rows.jsonl:4: no responses" in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_findings_are_said_once_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: EndpointServer
) -> None:
    monkeypatch.chdir(tmp_path)
    endpoint.script = lambda body: chat("<preference>A</preference>")
    Path("rows.csv").write_text("prompt,response_a,response_b\np,x,y\np,x,x\np,y,y\n")
    run = command("judge", "rows.csv", "--no-tools", *through(endpoint), code=0)
    lines = run.stderr.splitlines()
    assert lines[:1] == [
        "rows.csv: 2 of 3 inspected rows have identical responses, between which no judge can choose "
        "(first: rows.csv:3)"
    ]
    assert "".join(lines).count("identical") == 1


def test_findings_in_a_pipe_are_said_at_the_end(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<preference>A</preference>")
    rows = [row | {"label": label} for row, label in zip(pairs(2), (1, 2), strict=True)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    run = judge(tmp_path, "-", "--output", "out", "--no-tools", *through(endpoint), stdin=lines, code=1)
    assert "standard input: the labels seem to be counted from 1" in run.stderr.splitlines()[-1]
    empty = judge(tmp_path, "-", "--output", "none", "--no-tools", *through(endpoint), stdin="")
    assert (empty.returncode, empty.stderr) == (2, "tirjudge judge: standard input has no rows\n")
    blank = judge(tmp_path, "-", "--output", "none", "--no-tools", *through(endpoint), stdin="\n\n", code=2)
    assert blank.stderr.splitlines()[-1] == "tirjudge judge: standard input has no rows"
