"""`--format checks`, on the command line and behind an endpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from examples.miniature import TRAINED
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST, invoke, judge, results, through, write_rows

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


def test_a_model_that_nobody_trained_writes_its_check_first(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = writes_checks
    run = judge(tmp_path, rows(3), *through(endpoint), code=0)
    assert "decided by a program 3 of 3 rows" in run.stdout
    assert "writes its check before it reads the responses (else --format tir)" in run.stderr
    found = results(tmp_path / "rows.verdicts.jsonl")
    assert [(row["format"], row["verdict"], row["decided"]) for row in found] == [
        ("checks-pairwise", "B", True)
    ] * 3
    three = [{"prompt": "Shout.", "responses": ["wait", "wait!", "Wait"], "label": 1}]
    one = [{"prompt": "Shout.", "response": "wait!"}]
    for name, asked in (("checks-listwise", three), ("checks-pointwise", one)):
        judge(tmp_path, asked, *through(endpoint), "-o", f"{name}.jsonl", code=0)
        assert [row["format"] for row in results(tmp_path / f"{name}.jsonl")] == [name]


@pytest.mark.parametrize(
    "words",
    [
        "--format tir",
        "--exact",
        "--no-tools",
        "--no-bindings",
        "--prompts mini",
        "--tier tools",
        "--criteria-per-call 2",
        "--tool tests",
    ],
)
def test_options_that_checks_do_not_take_keep_the_responses_first(
    tmp_path: Path, endpoint: EndpointServer, words: str
) -> None:
    run = judge(tmp_path, rows(1), *through(endpoint), *words.split(), code=0)
    assert "before it reads" not in run.stderr
    [row] = results(tmp_path / "rows.verdicts.jsonl")
    assert row["format"].removeprefix("tir-") == "pairwise"
    assert all("wait!" in str(one.body) for one in endpoint.asked)


def test_rows_that_checks_cannot_read_are_judged_all_the_same(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = writes_checks
    with_files = {"prompt": "Shout.", "responses": TEXTS, "files": [{"a.txt": {"text": "1"}}, {}]}
    many = {"prompt": "Shout.", "responses": [f"wait {number}" for number in range(17)]}
    run = judge(tmp_path, [with_files, many, rows(1)[0]], *through(endpoint), code=0)
    formats = sorted(row["format"] for row in results(tmp_path / "rows.verdicts.jsonl"))
    assert (formats, run.stderr.count("use tir")) == (["checks-pairwise", "listwise", "pairwise"], 0)


def test_a_run_of_an_earlier_version_goes_on_as_it_began(tmp_path: Path, endpoint: EndpointServer) -> None:
    judge(tmp_path, rows(2), *through(endpoint), "--limit", "1", code=0)
    settings = tmp_path / "rows.verdicts.jsonl.settings.json"
    recorded = json.loads(settings.read_text())
    assert recorded["settings"].pop("untrained") == "checks"
    settings.write_text(json.dumps(recorded))
    judge(tmp_path, rows(2), *through(endpoint), code=0)
    assert [row["format"] for row in results(tmp_path / "rows.verdicts.jsonl")] == [
        "checks-pairwise",
        "pairwise",
    ]


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


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_a_jury_is_read_again_by_the_format_of_each_model(
    tmp_path: Path, endpoint: EndpointServer, order: int
) -> None:
    endpoint.script = writes_checks
    models = [word for model in (str(TRAINED), "m")[::order] for word in ("--model", model)]
    judge(tmp_path, rows(2), "--base-url", endpoint.url, *models, *FAST, code=0)
    for row in results(tmp_path / "rows.verdicts.jsonl"):
        checks = [any(one.get("is_check") for one in view["segments"]) for view in row["views"]]
        assert sorted(set(checks)) == [False, True]
    again = invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path)
    assert again.returncode == 0, again.stdout


def test_a_single_response_that_a_check_decided_asks_no_other_model(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = lambda body: writes_checks(body) if body["model"] == "one" else chat("<score>3</score>")
    write_rows(
        tmp_path / "rows.jsonl", [{"id": text, "prompt": "Shout.", "responses": [text]} for text in TEXTS]
    )
    models = ("--base-url", endpoint.url, "--model", "one", "--model", "two", *FAST)
    done = judge(tmp_path, "rows.jsonl", *models, "--escalate-below", "1", "--confidence", "evidence", code=0)
    found = {row["id"]: (row["scores"], row["decided"]) for row in results(tmp_path / "rows.verdicts.jsonl")}
    assert found == {"wait, No": ([1.0], True), "wait!": ([10.0], True)}
    assert "two" not in {body["model"] for body in endpoint.bodies}
    assert "one: has the verdict of 2 of 2 rows" in done.stdout


def test_a_check_that_prints_no_counts_failed(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: (
        chat("```python\ndef check(response):\n    return [1 +]\n```")
        if "<preference>" not in body["messages"][-1]["content"]
        else chat("<preference>B</preference>")
    )
    judge(tmp_path, rows(1), *through(endpoint), code=0)
    [row] = results(tmp_path / "rows.verdicts.jsonl")
    assert (row["programs"], row["programs_failed"], row["decided"]) == (2, 2, False)
    scored = invoke("score", "rows.verdicts.jsonl", "--protocol", "errors", folder=tmp_path).stdout
    assert re.search(r"^syntax errors +100.00 %", scored, re.MULTILINE), scored
    shown = invoke("show", "rows.verdicts.jsonl", "p0", folder=tmp_path).stdout
    assert "program 1: error" in shown, shown


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
