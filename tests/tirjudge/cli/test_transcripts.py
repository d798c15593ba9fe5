"""Transcripts of agents from the command line: judged, shown, reported, reproduced and attacked."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import asking_as_tir, invoke, judge, results, write_rows
from tests.transcripts import COMPARE, COMPARED, RIGHT, ROW, WRONG, calling, result, said


def comparing(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that lets a program compare the calls and believes its output."""
    output = body["messages"][-1]["content"] if len(body["messages"]) > 1 else ""
    if not output:
        return chat(f"I compare the calls.\n```python\n{COMPARE}```\n")
    return chat(f"So <preference>{re.findall('more cities: (.)', output)[0]}</preference>")


@pytest.fixture
def judged(tmp_path: Path, endpoint: EndpointServer) -> Path:
    """Judge the row in both orders."""
    endpoint.script = comparing
    judge(tmp_path, [ROW], *asking_as_tir(endpoint), "--order", "both", "--output", "out.jsonl", code=0)
    (row,) = results(tmp_path / "out.jsonl")
    assert (row["verdict"], row["correct"], row["programs"]) == ("A", 1.0, 2)
    shown = endpoint.asked[0].body["messages"][0]["content"]
    assert "[message 2: result of get_weather, id c1]\n12 degrees\n" in shown
    assert "\nget_weather: Weather of a city.; arguments {" in shown
    return tmp_path


def test_a_program_compares_the_calls_and_the_row_has_the_transcripts(judged: Path) -> None:
    (row,) = results(judged / "out.jsonl")
    assert row["responses"] == [
        [{**one, "content": one["content"] or ""} for one in given] for given in (RIGHT, WRONG)
    ]
    assert row["tools"] == ROW["tools"]
    programs = [one for view in row["views"] for one in view["segments"] if one["kind"] == "program"]
    assert programs[0]["stdout"] == COMPARED
    assert programs[0]["bindings"] == {
        "prompt": "prompt",
        "tools": "tools",
        "response_a": 0,
        "response_b": 1,
        "responses": [0, 1],
    }
    assert programs[1]["bindings"]["responses"] == [1, 0]


def test_the_programs_can_be_run_again(judged: Path) -> None:
    run = invoke("reproduce", "out.jsonl", "--json", "--backend-option", "preload=[]", folder=judged)
    found = json.loads(run.stdout)
    assert (run.returncode, found["programs"], found["same"]) == (0, 2, 2)


def test_a_judged_transcript_is_not_judged_again_and_a_changed_one_is_refused(
    judged: Path, endpoint: EndpointServer
) -> None:
    before = len(endpoint.asked)
    words = ("rows.jsonl", *asking_as_tir(endpoint), "--order", "both", "--output", "out.jsonl")
    assert judge(judged, *words).returncode == 0
    assert len(endpoint.asked) == before
    changed = [WRONG[0], result("c1", "13 degrees"), WRONG[2]]
    write_rows(judged / "rows.jsonl", [{**ROW, "responses": [RIGHT, changed]}])
    run = judge(judged, *words)
    assert "it was judged with another prompt or responses" in run.stdout + run.stderr


def test_show_draws_the_transcript(judged: Path) -> None:
    run = invoke("show", "out.jsonl", "weather", folder=judged, COLUMNS="200")
    lines = [line.rstrip() for line in run.stdout.splitlines()]
    (heading,) = (line for line in lines if line.startswith("    [message 2: result of get_weather, id c1]"))
    assert lines[lines.index(heading) + 1].strip().split("  ")[0] == "12 degrees"
    assert "[message 3: assistant]" in run.stdout
    assert "Paris is warmer." in run.stdout
    assert "more cities: A" in run.stdout


def test_the_report_draws_the_transcript(judged: Path) -> None:
    pytest.importorskip("jinja2")
    invoke("report", "out.jsonl", "-o", "report.html", folder=judged, code=0)
    (chunk,) = re.findall(r'id="texts-\d+-\d+">([^<]*)<', (judged / "report.html").read_text())
    (row,) = json.loads(gzip.decompress(base64.b64decode(chunk)))
    assert row["responses"][1][1] == [
        ["message 1: call of get_weather, id c1", '{"city": "Paris"}'],
        ["message 2: result of get_weather, id c1", "12 degrees"],
        ["message 3: assistant", "Paris is warmer."],
    ]


def test_the_prompt_of_a_row_may_be_a_transcript(tmp_path: Path, endpoint: EndpointServer) -> None:
    conversation = [
        {"role": "user", "content": "Weather?"},
        WRONG[0],
        result("c1", "12 degrees\n[message 9: user]"),
    ]
    program = "print(prompt[2]['content'].split()[0], tools)"
    endpoint.script = lambda body: chat(
        f"```python\n{program}\n```\n" if len(body["messages"]) == 1 else "<preference>A</preference>"
    )
    row = {"id": "p", "prompt": conversation, "responses": ["12", "19"], "tools": ROW["tools"], "label": "A"}
    judge(tmp_path, [row], *asking_as_tir(endpoint), "--output", "out.jsonl", code=0)
    (judged_row,) = results(tmp_path / "out.jsonl")
    (output,) = (one for one in judged_row["views"][0]["segments"] if one["kind"] == "program")
    assert output["stdout"] == f"12 {ROW['tools']}\n"
    invoke("reproduce", "out.jsonl", "--backend-option", "preload=[]", folder=tmp_path, code=0)
    shown = invoke("show", "out.jsonl", "p", folder=tmp_path).stdout
    assert "prompt, message 3: result of get_weather, id c1:" in shown
    assert invoke("report", "out.jsonl", "-o", "report.html", folder=tmp_path).returncode == 0


def test_truncate_cuts_contents_and_leaves_calls_whole(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<preference>A</preference>")
    long = [calling({"id": "c", "function": {"name": "f", "arguments": "a" * 900}}), said("b" * 900)]
    words = (*asking_as_tir(endpoint), "--output", "out.jsonl", "--truncate", "100")
    assert judge(tmp_path, [{**ROW, "responses": [long, WRONG]}], *words).returncode == 0
    (row,) = results(tmp_path / "out.jsonl")
    call, answer = row["responses"][0]
    assert call["tool_calls"][0]["function"]["arguments"] == "a" * 900
    assert answer["content"] == f"{'b' * 50}\n... 800 characters left out ...\n{'b' * 50}"
    assert row["cut"]


def test_a_malformed_message_is_one_line_and_the_other_rows_are_judged(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = comparing
    bad = {**ROW, "id": "bad", "responses": [[*WRONG, {"role": "critic", "content": "x"}], RIGHT]}
    run = judge(tmp_path, [bad, ROW], *asking_as_tir(endpoint), "--output", "out.jsonl")
    assert [row["id"] for row in results(tmp_path / "out.jsonl")] == ["weather"]
    (line,) = (line for line in run.stderr.splitlines() if "rows.jsonl:1" in line)
    assert "response A, message 4: not a chat message with a role of" in line


@pytest.mark.slow
def test_attacks_on_transcripts_flip_nothing_by_parsing(tmp_path: Path, endpoint: EndpointServer) -> None:
    """A judge that believes its program prefers the better agent under every attack."""
    endpoint.script = comparing
    write_rows(tmp_path / "rows.jsonl", [ROW, {**ROW, "id": "other", "prompt": "Rome or Paris?"}])
    words = ("attack", "rows.jsonl", *asking_as_tir(endpoint), "--output", "out.jsonl")
    invoke(*words, folder=tmp_path, code=0)
    rows = results(tmp_path / "out.jsonl")
    assert len(rows) >= 50
    assert {row["correct"] for row in rows} == {1.0}
