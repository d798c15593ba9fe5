"""`tirjudge reproduce --evidence`: evidence for the rows of older result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.cli.test_evidence import SUMMARY, checking, judged, rows_of
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST, invoke, results, through, write_rows
from tirjudge.storage.result_file import settings_path


@pytest.fixture
def judging(endpoint: EndpointServer) -> EndpointServer:
    endpoint.script = checking
    return endpoint


def test_older_files_get_their_evidence(tmp_path: Path, judging: EndpointServer) -> None:
    judged(tmp_path, judging, "--no-evidence", "--order", "both")
    before = (tmp_path / "rows.verdicts.jsonl").read_text()
    command = ("reproduce", "rows.verdicts.jsonl", "--evidence", "new.jsonl", *FAST)
    done = invoke(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"new.jsonl: {SUMMARY}" in done.stderr
    assert (tmp_path / "rows.verdicts.jsonl").read_text() == before
    added = {row["id"]: row for row in results(tmp_path / "new.jsonl")}
    # The same as if it had been recorded when the rows were judged.
    judged(tmp_path, judging, "--overwrite", "--order", "both")
    for id, row in rows_of(tmp_path).items():
        assert added[id]["decided"] is row["decided"]
        assert [view["evidence"] for view in added[id]["views"]] == [
            view["evidence"] for view in row["views"]
        ]
        assert added[id]["verdict"] == row["verdict"]
    again = invoke("reproduce", "new.jsonl", "--json", *FAST, folder=tmp_path)
    assert json.loads(again.stdout)["verdicts_changed"] == 0
    refused = invoke(*command, folder=tmp_path)
    assert (refused.returncode, "the file exists already" in refused.stderr) == (2, True)


def added(folder: Path, endpoint: EndpointServer, *judge: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Judge rows without evidence, add it, and judge them again with it.

    Returns `decided` and the evidence of the views by row, both as added and as judged, and what was said.
    """

    def known(file: str) -> dict[str, Any]:
        rows = results(folder / file)
        return {
            row["id"]: (row.get("decided"), [view.get("evidence") for view in row["views"]]) for row in rows
        }

    run = ("judge", "rows.jsonl", *through(endpoint), *judge, "--overwrite")
    assert invoke(*run, "--no-evidence", folder=folder).returncode == 0
    command = ("reproduce", "rows.verdicts.jsonl", "--evidence", "new.jsonl", *FAST)
    (folder / "new.jsonl").unlink(missing_ok=True)
    done = invoke(*command, folder=folder)
    assert done.returncode == 0, done.stderr
    assert invoke(*run, folder=folder).returncode == 0
    return known("new.jsonl"), known("rows.verdicts.jsonl"), done.stderr


def test_a_reference_with_the_text_of_a_response_is_not_exchanged(
    tmp_path: Path, judging: EndpointServer
) -> None:
    """A result file refers to equal texts in the same way; a prompt may be repeated as well."""

    def comparing(body: dict[str, Any]) -> dict[str, Any]:
        asked, last = body["messages"][0]["content"], body["messages"][-1]["content"]
        name = "reference" if "42" in asked else "prompt"
        if len(body["messages"]) == 1:
            checks = f"for n, one in zip('AB', responses): print(n, int(one == {name}), 'of 1')"
            return chat(f"```python\n{checks}\n```\n")
        return chat(f"<preference>{'A' if 'A 1 of 1' in last else 'B'}</preference>")

    judging.script = comparing
    rows = [
        {"id": "equal", "prompt": "6 * 7?", "reference": "42", "responses": ["42", "43"]},
        {"id": "repeat", "prompt": "Say it.", "responses": ["no", "Say it."]},
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    found, expected, _ = added(tmp_path, judging, "--order", "both")
    assert found == expected == dict.fromkeys(("equal", "repeat"), (True, ["separates", "separates"]))


def test_transcripts_judged_alone_are_replaced_by_each_other(tmp_path: Path, judging: EndpointServer) -> None:
    def checking(body: dict[str, Any]) -> dict[str, Any]:
        # An empty response fails the check as the first transcript does; the second one passes.
        check = "print(bool(response) and len(response[0]['content']) > 5)"
        asks = len(body["messages"]) == 1
        return chat(f"```python\n{check}\n```\n" if asks else "<score>7</score>")

    def transcript(text: str) -> list[dict[str, Any]]:
        called = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": text, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "1", "content": "r"},
        ]

    judging.script = checking
    row = {"id": "t", "prompt": "p", "responses": [transcript("short"), transcript("much longer")]}
    write_rows(tmp_path / "rows.jsonl", [row])
    found, expected, _ = added(tmp_path, judging, "--pointwise")
    assert found == expected == {"t": (True, ["separates", "separates"])}


def test_criteria_get_their_evidence_without_reported_tokens(tmp_path: Path, judging: EndpointServer) -> None:
    """With a dialogue for each criterion, and with one for both, whose output is about no single one."""

    def untold(body: dict[str, Any]) -> dict[str, Any]:
        answer = checking(body)
        if "<preference>...</preference> <preference>" in body["messages"][0]["content"]:
            answer = chat("<preference>A</preference> <preference>A</preference>")
        return {name: value for name, value in answer.items() if name != "usage"}

    judging.script = untold
    criteria = ["Use fewer than 10 characters.", "Use fewer than 10 characters, really."]
    row = {"id": "x", "prompt": "Be brief.", "responses": ["short", "much too long"], "criteria": criteria}
    write_rows(tmp_path / "rows.jsonl", [row])
    found, expected, _ = added(tmp_path, judging, "--order", "given")
    assert found == expected == {"x": (True, ["separates", "separates"])}
    # Without the settings beside the file, the time of each dialogue says that it is one.
    assert invoke(
        "judge", "rows.jsonl", *through(judging), "--order", "given", "--overwrite", "--no-evidence",
        folder=tmp_path,
    ).returncode == 0  # fmt: skip
    settings_path(tmp_path / "rows.verdicts.jsonl").unlink()
    invoke("reproduce", "rows.verdicts.jsonl", "--evidence", "more.jsonl", *FAST, folder=tmp_path)
    assert [one["decided"] for one in results(tmp_path / "more.jsonl")] == [True]
    (tmp_path / "rows.verdicts.jsonl").unlink()
    found, expected, _ = added(tmp_path, judging, "--order", "given", "--criteria-per-call", "2")
    assert found == expected == {"x": (None, [None, None])}


@pytest.mark.parametrize("option", ["--exact", "--no-bindings", "--no-tools"])
def test_no_evidence_is_added_without_variables(option: str, tmp_path: Path, judging: EndpointServer) -> None:
    def printing(body: dict[str, Any]) -> dict[str, Any]:
        asks = len(body["messages"]) == 1 and "COUNT" in body["messages"][0]["content"]
        return chat("```python\nprint('A')\n```\n" if asks else "<preference>A</preference>")

    judging.script = printing
    prompts = ["Say"] if option == "--no-tools" else ["COUNT", "Say"]
    rows = [{"id": prompt, "prompt": prompt, "responses": ["x", "y"]} for prompt in prompts]
    write_rows(tmp_path / "rows.jsonl", rows)
    found, expected, said = added(tmp_path, judging, "--order", "given", option)
    assert found == expected == dict.fromkeys(prompts, (None, [None]))
    assert "the file lacks what evidence needs" in said
    # Without the settings beside the file, the programs themselves say so.
    settings_path(tmp_path / "rows.verdicts.jsonl").unlink()
    invoke("reproduce", "rows.verdicts.jsonl", "--evidence", "more.jsonl", *FAST, folder=tmp_path)
    assert all("decided" not in row for row in results(tmp_path / "more.jsonl") if row["programs"])


def test_rows_without_programs_get_their_evidence(tmp_path: Path, judging: EndpointServer) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"id": "x", "prompt": "Be kind.", "responses": ["yes", "no"]}])
    found, expected, said = added(tmp_path, judging, "--order", "given")
    assert found == expected == {"x": (False, ["missing"])}
    assert "decided by a program 0 of 1 rows; 1 are the model's opinion" in said
    command = ("reproduce", "rows.verdicts.jsonl", "--evidence", "nowhere/new.jsonl", *FAST)
    refused = invoke(*command, folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "there is no folder nowhere" in refused.stderr


def test_an_edited_row_stays_as_it_is(tmp_path: Path, judging: EndpointServer) -> None:
    """And the new file appears only when all of its rows are there."""
    judged(tmp_path, judging, "--no-evidence")
    lines = [json.loads(line) for line in (tmp_path / "rows.verdicts.jsonl").read_text().splitlines()]
    edited = next(row for row in lines if row["programs"])
    program, *_ = [part for part in edited["views"][0]["segments"] if part["kind"] == "program"]
    program["status"] = "splendid"
    (tmp_path / "rows.verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    command = ("reproduce", "rows.verdicts.jsonl", "--evidence", "new.jsonl", *FAST)
    assert invoke(*command, folder=tmp_path).returncode == 1
    added = {row["id"]: row for row in results(tmp_path / "new.jsonl")}
    assert added.keys() == {row["id"] for row in lines}
    assert added[edited["id"]] == edited
    assert not (tmp_path / "new.jsonl.new").exists()


def test_single_responses_of_older_files_get_their_evidence(tmp_path: Path, judging: EndpointServer) -> None:
    def scoring(body: dict[str, Any]) -> dict[str, Any]:
        counts = "COUNT them" in body["messages"][0]["content"]
        if len(body["messages"]) == 1:
            return chat(f"```python\nprint({'len(response)' if counts else 1})\n```\n")
        return chat("<score>7</score>")

    judging.script = scoring
    asked = {"w": "COUNT them", "n": "Say no"}
    rows = [{"id": id, "prompt": prompt, "responses": ["one two"]} for id, prompt in asked.items()]
    write_rows(tmp_path / "rows.jsonl", rows)
    invoke("judge", "rows.jsonl", *through(judging), "--no-evidence", folder=tmp_path)
    done = invoke("reproduce", "rows.verdicts.jsonl", "--evidence", "new.jsonl", *FAST, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    added = {row["id"]: row["decided"] for row in results(tmp_path / "new.jsonl")}
    invoke("judge", "rows.jsonl", *through(judging), "--overwrite", folder=tmp_path)
    assert added == {id: row["decided"] for id, row in rows_of(tmp_path).items()} == {"w": True, "n": False}
