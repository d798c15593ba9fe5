"""A jury: several models judge the same rows and vote, or each next model is asked where one is not sure."""

import json
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import krippendorff
import pytest
from starlette.responses import Response

from tests.tirjudge.endpoint_server import EndpointServer, chat, failure
from tests.tirjudge.judge_command import FAST, invoke, results, write_rows
from tirjudge import Judge
from tirjudge.cli.options import RunOptions, read_options

VOTES = {"one": "AABBAB", "two": "ABBBAA", "three": "AAABBA"}
"""The verdicts of three models on six rows, in the letters of the rows."""
LABELS = "AABBBB"
TOKENS = {"one": (100, 10), "two": (200, 20), "three": (300, 30)}


def voting(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as the model of the request votes on the row whose number its question ends with."""
    model, asked = body["model"], body["messages"][-1]["content"]
    number = next(n for n in range(6) if f"Question {n}" in asked)
    read, written = TOKENS[model]
    answer = chat(f"I compared them.\n<preference>{VOTES[model][number]}</preference>")
    return answer | {"usage": {"prompt_tokens": read, "completion_tokens": written}}


def rows(folder: Path) -> str:
    given = [
        {"id": f"r{n}", "prompt": f"Question {n}", "responses": ["x", "y"], "label": letter}
        for n, letter in enumerate(LABELS)
    ]
    return write_rows(folder / "rows.jsonl", given).name


def asking(endpoint: EndpointServer, *models: str) -> tuple[str, ...]:
    named = [word for model in models for word in ("--model", model)]
    return ("--base-url", endpoint.url, *named, "--no-tools", "--order", "given", *FAST)


def asked(endpoint: EndpointServer) -> Counter[str]:
    return Counter(body["model"] for body in endpoint.bodies)


def test_the_verdict_is_that_of_most_models(tmp_path: Path, endpoint: EndpointServer) -> None:
    """Two of three models give A A B B A A: four of the six labels."""
    endpoint.script = voting
    file = rows(tmp_path)
    run = invoke("judge", file, *asking(endpoint, "one", "two", "three"), folder=tmp_path, code=0)
    found = {row["id"]: row for row in results(tmp_path / "rows.verdicts.jsonl")}
    assert "".join(found[f"r{n}"]["verdict"] for n in range(6)) == "AABBAA"
    assert asked(endpoint) == {"one": 6, "two": 6, "three": 6}
    row = found["r5"]
    assert [(one["model"], one["verdict"], one["correct"]) for one in row["jury"]] == [
        ("one", "B", 1.0),
        ("two", "A", 0.0),
        ("three", "A", 0.0),
    ]
    assert row["model"] == "one, two, three"
    assert (row["prompt_tokens"], row["completion_tokens"]) == (600, 60)

    assert "accuracy  66.7%" in run.stdout
    assert "one: has the verdict of 5 of 6 rows; accuracy 83.3%" in run.stdout
    assert "two: has the verdict of 5 of 6 rows; accuracy 50.0%" in run.stdout
    assert "1800 tokens read, 180 written" in run.stdout
    classes = [[float(letter == "B") for letter in VOTES[model]] for model in VOTES]
    alpha = krippendorff.alpha(classes, level_of_measurement="nominal")
    assert f"agreement {alpha:.2f} is Krippendorff's alpha of 6 rows" in run.stdout
    assert "one and three: 50.0% equal verdicts" in run.stdout

    shown = invoke("show", "rows.verdicts.jsonl", "r5", folder=tmp_path).stdout
    assert "jury: one B · two A · three A" in shown
    assert "three, view AB, sample 2" in shown
    invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path, code=0)
    scored = invoke("score", "rows.verdicts.jsonl", "--full", folder=tmp_path).stdout
    assert scored.startswith("accuracy 66.67 %")
    assert "one, three" in scored


def test_guesses_of_models_are_neither_votes_nor_agreement_where_they_are_ties(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    """One model always guesses A and the other B, but for a row whose program both believe."""

    def guessing(body: dict[str, Any]) -> dict[str, Any]:
        said = body["messages"][-1]["content"]
        if "Question 0" in said:
            return chat("```python\nprint('A' if response_a > response_b else 'B')\n```\n")
        letter = "AB"[body["model"] == "two"]
        return chat(f"<preference>{'B' if len(body['messages']) > 1 else letter}</preference>")

    endpoint.script = guessing
    models = ("--base-url", endpoint.url, "--model", "one", "--model", "two", "--order", "given", *FAST)
    models += ("--prompts", "tir")
    file = rows(tmp_path)
    run = invoke("judge", file, *models, "--undecided", "tie", folder=tmp_path)
    assert "decided by a program 1 of 6 rows; 5 undecided, counted as ties" in run.stdout
    assert "one: has the verdict of 1 of 6 rows" in run.stdout
    assert "one and two: 100.0% equal verdicts" in run.stdout
    assert "Krippendorff's alpha of 1 rows" in run.stdout
    found = {row["id"]: row for row in results(tmp_path / "rows.verdicts.jsonl")}
    kept = ("verdict", "decided", "guess")
    assert [[one.get(name) for name in kept] for one in found["r1"]["jury"]] == [
        ["tie", False, "A"],
        ["tie", False, "B"],
    ]
    assert [[one.get(name) for name in kept] for one in found["r0"]["jury"]] == [["B", True, None]] * 2
    shown = invoke("show", "rows.verdicts.jsonl", "r1", folder=tmp_path).stdout
    assert "jury: one tie (guess A) · two tie (guess B)" in shown
    invoke("judge", file, *models, "--overwrite", folder=tmp_path)
    shown = invoke("show", "rows.verdicts.jsonl", "r1", folder=tmp_path).stdout
    assert "jury: one A (undecided) · two B (undecided)" in shown


def test_votes_have_weights(tmp_path: Path, endpoint: EndpointServer) -> None:
    """Model one outvotes the two others with a weight of 3, and ties with them at 2."""
    endpoint.script = voting
    file = rows(tmp_path)
    for weight, expected in (("3", VOTES["one"]), ("2", "AABBA?")):
        words = (*asking(endpoint, "one", "two", "three"), "--vote-weight", f"one={weight}")
        invoke("judge", file, *words, "--output", f"{weight}.jsonl", folder=tmp_path, code=0)
        found = {row["id"]: row["verdict"] for row in results(tmp_path / f"{weight}.jsonl")}
        assert [found[f"r{n}"] for n in range(6)] == ["tie" if one == "?" else one for one in expected]
        invoke("reproduce", f"{weight}.jsonl", folder=tmp_path, code=0)


@pytest.mark.parametrize(("weight", "samples"), [("2", "1"), ("1", "3")])
def test_a_tie_of_a_jury_over_a_list_is_scored_as_it_was_judged(
    weight: str, samples: str, tmp_path: Path, endpoint: EndpointServer
) -> None:
    """A with a weight of 2 ties with two votes for B; and A ties with B of a model that also samples a C."""
    models = ("one", "two", "three") if weight == "2" else ("one", "two")
    choices = {"one": cycle("A"), "two": cycle("BBC" if samples == "3" else "B"), "three": cycle("B")}
    endpoint.script = lambda body: chat(f"<preference>{next(choices[body['model']])}</preference>")
    write_rows(
        tmp_path / "rows.jsonl", [{"id": "r", "prompt": "?", "responses": ["x", "y", "z"], "label": "A"}]
    )
    words = (*asking(endpoint, *models), "--vote-weight", f"one={weight}", "--samples", samples)
    run = invoke("judge", "rows.jsonl", *words, "--concurrency", "1", folder=tmp_path, code=0)
    assert "accuracy  50.0%" in run.stdout
    scored = invoke("score", "rows.verdicts.jsonl", "--protocol", "verdict", folder=tmp_path).stdout
    assert scored.startswith("accuracy 50.00 %")


def test_scores_are_means_of_all_models(tmp_path: Path, endpoint: EndpointServer) -> None:
    given = {"one": 9, "two": 3, "three": 6}
    endpoint.script = lambda body: chat(f"<score>{given[body['model']]}</score>")
    write_rows(tmp_path / "rows.jsonl", [{"id": "r", "prompt": "Question", "responses": ["x"]}])
    words = asking(endpoint, "one", "two", "three")
    invoke(
        "judge", "rows.jsonl", *(w for w in words if w not in ("--order", "given")), folder=tmp_path, code=0
    )
    (row,) = results(tmp_path / "rows.verdicts.jsonl")
    assert row["scores"] == [6.0]
    assert [one["scores"] for one in row["jury"]] == [[9.0], [3.0], [6.0]]


def wavering(body: dict[str, Any]) -> dict[str, Any]:
    """The small model prefers the first place in rows 3 to 5; the large one knows that B is right."""
    asked = body["messages"][-1]["content"]
    number = next(n for n in range(6) if f"Question {n}" in asked)
    swapped = asked.index("the-second") < asked.index("the-first")
    sees_b = "A" if swapped else "B"
    verdict = "A" if body["model"] == "small" and number > 2 else sees_b
    return chat(f"So <preference>{verdict}</preference>")


@pytest.fixture
def cascade(tmp_path: Path, endpoint: EndpointServer) -> tuple[str, ...]:
    endpoint.script = wavering
    given = [
        {"id": f"r{n}", "prompt": f"Question {n}", "responses": ["the-first", "the-second"], "label": "B"}
        for n in range(6)
    ]
    write_rows(tmp_path / "rows.jsonl", given)
    models = ("--model", "small", "--model", "large", "--base-url", endpoint.url)
    return ("rows.jsonl", *models, "--no-tools", "--order", "both", "--escalate-below", "0.9", *FAST)


def test_the_next_model_judges_what_one_is_not_sure_of(
    tmp_path: Path, endpoint: EndpointServer, cascade: tuple[str, ...]
) -> None:
    run = invoke("judge", *cascade, folder=tmp_path, code=0)
    assert asked(endpoint) == {"small": 12, "large": 6}
    found = {row["id"]: row for row in results(tmp_path / "rows.verdicts.jsonl")}
    assert {row["verdict"] for row in found.values()} == {"B"}
    sure, unsure = found["r0"], found["r4"]
    assert [(one["model"], one["verdict"], one["confidence"]) for one in sure["jury"]] == [
        ("small", "B", 1.0)
    ]
    small, large = unsure["jury"]
    assert (small["verdict"], small["confidence"], small["samples"]) == ("tie", 0.0, [])
    assert (large["verdict"], large["samples"]) == ("B", [0])
    assert len(unsure["views"]) == 2
    # The dialogues of the first model stay, and count nowhere.
    assert [one["verdict"]["choice"] for one in unsure["earlier"]["small"]] == [0, 1]
    assert "earlier" not in sure
    shown = invoke("show", "rows.verdicts.jsonl", "r4", folder=tmp_path).stdout
    assert shown.count("small, which was not sure enough, view ") == 2
    invoke("report", "rows.verdicts.jsonl", "-o", "page.html", folder=tmp_path, code=0)
    assert unsure["prompt_tokens"] == 2 * sure["prompt_tokens"] == 28
    assert found["r4"]["model"] == "small, then large"
    assert "small: has the verdict of 3 of 6 rows" in run.stdout
    assert "large: has the verdict of 3 of 3 rows" in run.stdout
    invoke("reproduce", "rows.verdicts.jsonl", folder=tmp_path, code=0)
    turned = json.loads(json.dumps(unsure))
    turned["earlier"]["small"][0]["verdict"]["choice"] = 1
    write_rows(tmp_path / "turned.verdicts.jsonl", [turned])
    changed = invoke("reproduce", "turned.verdicts.jsonl", folder=tmp_path, code=1)
    assert "the file says B, and the dialogue says A" in changed.stdout
    before = len(endpoint.asked)
    assert invoke("judge", *cascade, folder=tmp_path).returncode == 0
    assert len(endpoint.asked) == before, "the same command resumes"


def test_a_model_that_fails_leaves_the_row_to_the_next_run(tmp_path: Path, endpoint: EndpointServer) -> None:
    file = rows(tmp_path)
    endpoint.script = lambda body: failure(500, "down") if body["model"] == "two" else voting(body)
    words = (*asking(endpoint, "one", "two", "three"), "--retries", "0")
    assert invoke("judge", file, *words, folder=tmp_path).returncode == 1
    assert not (tmp_path / "rows.verdicts.jsonl").read_text()
    endpoint.script = voting
    invoke("judge", file, *words, folder=tmp_path, code=0)
    assert len(results(tmp_path / "rows.verdicts.jsonl")) == 6


NONSENSE: dict[str, Any] = {
    "bytes": Response(bytes(range(256)) * 10),
    "depth": Response("[" * 100_000, media_type="application/json"),
    "no answer": {"choices": []},
    "nothing": chat(""),
    "half a surrogate": Response(
        b'{"choices": [{"message": {"content": "\\ud800"}, "finish_reason": "stop"}]}'
    ),
    "escapes": chat("\x1b[2J\u202e<preference>\x00</preference>"),
    "no number": chat("<score_A>NaN</score_A><score_B>1e999</score_B>"),
}


@pytest.mark.parametrize("said", NONSENSE)
def test_a_model_that_talks_nonsense_never_decides(
    said: str, tmp_path: Path, endpoint: EndpointServer
) -> None:
    """It has no vote, and what is no answer at all leaves the row to the next run."""
    endpoint.script = lambda body: NONSENSE[said] if body["model"] == "two" else voting(body)
    words = (*asking(endpoint, "one", "two"), "--retries", "0")
    run = invoke("judge", rows(tmp_path), *words, folder=tmp_path)
    assert "Traceback" not in run.stderr
    assert "\x1b" not in run.stdout + run.stderr
    found = results(tmp_path / "rows.verdicts.jsonl")
    assert "".join(row["verdict"] for row in sorted(found, key=lambda row: str(row["id"]))) in (
        "",
        VOTES["one"],
    )
    assert run.returncode == (0 if found else 1)


def test_each_model_has_its_own_cost(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = voting
    words = (*asking(endpoint, "one", "two"), "--price-in", "1000", "--price-out", "5000", "--json")
    run = invoke("judge", rows(tmp_path), *words, folder=tmp_path)
    summary = json.loads(run.stdout)
    costs = {one["model"]: one["cost"] for one in summary["jury"]}
    assert costs == pytest.approx({"one": 6 * (0.1 + 0.05), "two": 6 * (0.2 + 0.1)})
    assert summary["cost"] == pytest.approx(sum(costs.values()))
    assert summary["agreement"]["pairs"][0]["runs"] == ["one", "two"]


def test_a_jury_in_python_and_in_a_config_file(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = voting
    with Judge(
        model="one", jury=["two", "three"], base_url=endpoint.url, tools=False, order="given"
    ) as judge:
        result = judge.compare("Question 5", "x", "y")
    assert result.verdict == "A"
    assert [(one.model, one.verdict) for one in result.jury] == [("one", "B"), ("two", "A"), ("three", "A")]
    assert [one["model"] for one in result.to_dict()["jury"]] == ["one", "two", "three"]
    (tmp_path / "jury.toml").write_text('model = "one"\njury = ["two"]\n')
    assert read_options(RunOptions, tmp_path / "jury.toml", {}).jury == ("two",)


def test_a_jury_writes_to_standard_output(tmp_path: Path, endpoint: EndpointServer) -> None:
    endpoint.script = voting
    words = (*asking(endpoint, "one", "two", "three"), "--output", "-")
    run = invoke("judge", rows(tmp_path), *words, folder=tmp_path, code=0)
    assert len(run.stdout.splitlines()) == 6
    assert "is Krippendorff's alpha of 6 rows" in run.stderr


def test_names_and_verdicts_of_a_jury_cannot_write_to_the_terminal(
    tmp_path: Path, endpoint: EndpointServer
) -> None:
    endpoint.script = voting
    invoke("judge", rows(tmp_path), *asking(endpoint, "one", "two", "three"), folder=tmp_path, code=0)
    file = tmp_path / "rows.verdicts.jsonl"
    (first, *_) = results(file)
    first["jury"][0] |= {"model": "one\x1b[2J", "verdict": "A\x1b]0;title\x07\nrow r9: B", "stop": "\x1b[31m"}
    first["jury"][1] |= {"verdict": None, "stop": "\x1b[31m"}
    write_rows(tmp_path / "forged.jsonl", [first])
    shown = invoke("show", "forged.jsonl", "r0", folder=tmp_path).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert not any(line.startswith("row r9") for line in shown.splitlines())
    assert "jury: one" in shown
