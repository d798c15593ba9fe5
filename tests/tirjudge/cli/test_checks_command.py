"""`--format checks`, on the command line and behind an endpoint."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import invoke, judge, results, through, write_rows

CHECK = "```python\ndef check(response):\n    return ['!' in response, response.islower()]\n```"
TEXTS = ("wait, No", "wait!")


def writes_checks(body: dict[str, Any]) -> dict[str, Any]:
    """Play a judge that never runs a program unasked, writes a check if asked, and believes its counts."""
    asked = body["messages"][-1]["content"]
    if "Write the function" in asked:
        return chat(CHECK)
    counts = {letter: int(kept) for letter, kept in re.findall(r"^([A-Z]) (\d) of 2$", asked, re.MULTILINE)}
    if "<score>" in asked:
        return chat(f"<score>{1 + 9 * asked.count('2 of 2')}</score>")
    return chat(f"<preference>{max(counts, key=counts.__getitem__) if counts else 'A'}</preference>")


def rows(count: int, texts: tuple[str, ...] = TEXTS) -> list[dict[str, Any]]:
    return [{"id": f"p{n}", "prompt": f"Shout {n}.", "responses": texts, "label": 1} for n in range(count)]


def test_a_run_that_decided_nothing_proposes_checks_which_decide(
    tmp_path: Path, endpoint: EndpointServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.script = writes_checks
    write_rows(tmp_path / "rows.jsonl", rows(3))
    folder = tmp_path / ("f" * 200) / ("g" * 200)
    folder.mkdir(parents=True)
    once = ["--junit", "rows.xml", "--overwrite", "-o", str(folder / "rows.verdicts.jsonl")]
    words = ["judge", "rows.jsonl", *through(endpoint), *once]
    monkeypatch.setattr(sys, "argv", ["tirjudge", *words])
    run = invoke(*words, folder=tmp_path, code=0)
    [proposal] = [line.strip() for line in run.stdout.splitlines() if "--format checks" in line]
    assert not {"--junit", "--overwrite"} & set(shlex.split(proposal))
    again = invoke(*shlex.split(proposal)[1:], folder=tmp_path, code=0)
    assert "decided by a program 3 of 3 rows" in again.stdout
    assert "--format checks" not in again.stdout
    found = results(folder / "rows.checks.verdicts.jsonl")
    assert [(row["format"], row["verdict"], row["decided"]) for row in found] == [
        ("checks-pairwise", "B", True)
    ] * 3
    # Checks choose a format by themselves.
    alone = invoke(*words[:-1], str(folder / "pairs.jsonl"), "--pairwise", folder=tmp_path)
    assert "--format checks" not in alone.stdout


def test_the_record_shows_and_repeats_the_check(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = writes_checks
    assert judge(tmp_path, rows(1), *through(endpoint), "--format", "checks").returncode == 0
    path = tmp_path / "rows.verdicts.jsonl"
    kinds = [segment["kind"] for segment in results(path)[0]["views"][0]["segments"]]
    assert kinds == ["program", "output"]
    shown = invoke("show", path.name, "p0", folder=tmp_path).stdout
    assert "return ['!' in response, response.islower()]" in shown
    assert "isolated.run" not in shown
    again = invoke("reproduce", path.name, folder=tmp_path)
    assert (again.returncode, "same                 1" in again.stdout) == (0, True), (
        again.stdout + again.stderr
    )
    text = path.read_text()
    path.write_text(text.replace("2 of 2", "1 of 2"))
    assert invoke("reproduce", path.name, folder=tmp_path).returncode == 1
    row = json.loads(text)
    row["views"][0]["verdict"]["choice"] = 0
    path.write_text(json.dumps(row) + "\n")
    assert "the dialogue says B" in invoke("reproduce", path.name, folder=tmp_path).stdout


def test_no_texts_leaves_the_responses_out_of_outputs(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = writes_checks
    tied = "wait, No", "Stop, No"
    command = (*through(endpoint), "--format", "checks", "--no-texts")
    assert judge(tmp_path, rows(1, tied), *command).returncode == 0
    text = (tmp_path / "rows.verdicts.jsonl").read_text()
    assert "of 2" in text
    assert "Which response follows" in endpoint.asked[-1].body["messages"][-1]["content"]
    assert not any(response in text for response in tied)
    assert invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path).returncode != 0


@pytest.mark.parametrize(("texts", "format"), [(TEXTS[:1], "pointwise"), ((*TEXTS, "No"), "listwise")])
def test_the_number_of_responses_chooses_the_format(
    tmp_path: Path, endpoint: EndpointServer, texts: tuple[str, ...], format: str
) -> None:
    endpoint.script = writes_checks
    kept = {**rows(1, texts)[0], "label": "pass" if len(texts) == 1 else 1}
    assert judge(tmp_path, [kept], *through(endpoint), "--format", "checks").returncode == 0
    [row] = results(tmp_path / "rows.verdicts.jsonl")
    assert row["format"] == f"checks-{format}"
    assert row["scores"] == [1.0] if len(texts) == 1 else row["verdict"] == "B"


def test_long_responses_leave_the_check_its_tokens(tmp_path: Path, endpoint: EndpointServer) -> None:
    """`--max-tokens` counts what the judge writes, as in formats whose prompt has the responses."""
    endpoint.script = writes_checks
    limited = (*through(endpoint), "--format", "checks", "--max-tokens", "400")
    assert judge(tmp_path, rows(1, tuple(f"{text}{' a' * 2000}" for text in TEXTS)), *limited).returncode == 0
    [row] = results(tmp_path / "rows.verdicts.jsonl")
    assert (row["verdict"], row["decided"]) == ("B", True)


def test_each_criterion_has_a_check_of_its_own(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = writes_checks
    write_rows(tmp_path / "rows.jsonl", [{**rows(1)[0], "criteria": ["is loud", "is calm"]}])
    assert judge(tmp_path, "rows.jsonl", *through(endpoint), "--format", "checks").returncode == 0
    first = [json.dumps(one.body) for one in endpoint.asked if len(one.body["messages"]) == 1]
    assert [
        ("is loud" in text, "is calm" in text) for text in sorted(first, key=lambda text: "is loud" in text)
    ] == [(False, True), (True, False)]
    [row] = results(tmp_path / "rows.verdicts.jsonl")
    assert [one["decided"] for one in row["criteria"]] == [True, True]
