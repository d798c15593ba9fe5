"""Recorded verdicts read again: for every format, an honest file passes and an edited one is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judged_files import edit, judge_to
from tirjudge.judging.rereading import Rereading, relabelled, row_task
from tirjudge.records.result_row import read_result_rows
from tirjudge.records.text import criterion_text
from tirjudge.storage.result_file import record_settings
from tirjudge_environments import Context, environment_names

ROW = {"id": "x", "prompt": "p", "responses": ["r0", "r1"], "label": 0}
_THOUGHT = "<think>t</think>"
ANSWERS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "tir-pairwise": ("<preference>A</preference>", 2, {}),
    "tir-listwise": ("<preference>B</preference>", 3, {}),
    "tir-pointwise": ("<score>7.5</score>", 2, {}),
    "checks-pairwise": ("<preference>A</preference>", 2, {"tools": True}),
    "checks-listwise": ("<preference>B</preference>", 3, {"tools": True}),
    "checks-pointwise": ("<score>7.5</score>", 2, {"tools": True}),
    "j1-pas": (f"{_THOUGHT}<score_A> 7.5 </score_A> <score_B> 4 </score_B>", 2, {}),
    "j1-pav": (f"{_THOUGHT}<answer> [[A]] </answer>", 2, {}),
    "j1-pavs": (f"{_THOUGHT}<score_A> 7.5 </score_A> <score_B> 4 </score_B> <answer> [[A]] </answer>", 2, {}),
    "j1-pos": (f"{_THOUGHT}<score> 7.5 </score>", 2, {}),
    "judgelrm-pair": (f"{_THOUGHT}<answer>8</answer><answer>3</answer>", 2, {}),
    "judgelrm-single": (f"{_THOUGHT}<answer>8</answer>", 2, {}),
    "rationale": ("<RESULT_START>\n- shorter\n\\boxed{A>B}\n<RESULT_END>", 2, {}),
    "rm-r1": ("<answer>[[A]]</answer>", 2, {}),
    "rm-r1 ": ("B", 2, {"options": {"style": "answer-only"}}),
    "tir-pairwise ": ("```python\nprint(1)\n```\n<preference>A</preference>", 2, {"tools": False}),
    "tir-pairwise  ": ("I cannot say.", 2, {}),
}
"""Format, with spaces behind a further answer of it, to an answer, the number of responses and options."""


def change_verdict(row: dict[str, Any]) -> None:
    verdict = row["views"][0]["verdict"]
    if verdict is None:
        row["views"][0] |= {"verdict": {"choice": 0, "tie": False, "scores": {}}, "stop": "verdict"}
    elif verdict["choice"] is None:
        verdict["scores"] = {index: score + 1 for index, score in verdict["scores"].items()}
    else:
        verdict["choice"] = 1 - min(verdict["choice"], 1)


def change_text(row: dict[str, Any]) -> None:
    row["views"][0]["segments"] = row["views"][0]["segments"][:-1]


def change_row(row: dict[str, Any]) -> None:
    row["verdict"] = "B" if row["verdict"] == "A" else "A"


def change_credit(row: dict[str, Any]) -> None:
    row["correct"] = 1.0 if row["correct"] == 0 else 0.0


def always(answer: str) -> Callable[[Context], str]:
    return lambda context: answer


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    assert {name.strip() for name in ANSWERS} == set(environment_names())
    folder, found = tmp_path_factory.mktemp("judged"), {}
    for number, (name, (answer, count, options)) in enumerate(ANSWERS.items()):
        row = {"id": "x", "prompt": "p", "responses": [f"r{n}" for n in range(count)], "label": 0}
        options = {"tools": False, **options, "format": name.strip()}
        found[name] = judge_to(folder / f"{number}.jsonl", [row], always(answer), samples=2, **options)
    return found


@pytest.mark.parametrize("name", ANSWERS)
def test_only_an_edited_verdict_is_found(name: str, judged: dict[str, Path], tmp_path: Path) -> None:
    path = judged[name]
    honest = Rereading.of(path)
    assert (honest.read > 0, honest.unreadable, honest.changed) == (True, 0, [])
    for change in (change_verdict, change_text, change_row, change_credit):
        if change is change_text and name == "tir-pairwise  ":
            continue  # there is no verdict that the text could lose
        copy = tmp_path / f"{change.__name__}.jsonl"
        copy.write_bytes(path.read_bytes())
        edit(copy, lambda rows, change=change: change(rows[0]))  # type: ignore[misc]
        assert Rereading.of(copy).changed, change.__name__


LONGER = "```python\nprint(names[len(response_b) > len(response_a)])\n```\n"
RULES = ["is the longer text", "is kind", "is brief"]


def checking_length(context: Context) -> str:
    """Decide the first rule by a program, and guess the second response for all others."""
    asked = context.prompt.messages[-1].content
    if RULES[0] not in asked:
        return "<preference>B</preference>" * max(1, sum(rule in asked for rule in RULES))
    if not context.segments:
        return LONGER.replace("names", "'AB'")
    said = "A" if "\nA\n" in context.segments[-1].text else "B"
    return f"<preference>{said}</preference>" + "<preference>B</preference>" * (RULES[1] in asked)


@pytest.mark.parametrize(
    ("options", "criteria", "expected", "decided"),
    [
        # The checked rule is not undone by a guess about another one.
        ({}, RULES[:2], ("A", [0.75, 0.25], True), [True, False]),
        ({"undecided": "guess"}, RULES[:2], ("tie", [0.5, 0.5], False), [True, False]),
        ({"samples": 3}, RULES[:2], ("A", [0.75, 0.25], True), [True, False]),
        ({}, RULES, ("tie", None, False), [True, False, False]),
        # A program is not about one of two rules, so that nothing is known of their verdicts.
        ({"criteria_per_call": 2}, RULES, ("tie", None, False), [None, None, False]),
    ],
)
def test_a_row_whose_guesses_are_ties_is_read_again(
    options: dict[str, Any],
    criteria: list[str],
    expected: tuple[Any, ...],
    decided: list[Any],
    tmp_path: Path,
) -> None:
    row = {"id": "x", "prompt": "p", "responses": ["a longer text", "text"], "criteria": criteria}
    given = {"undecided": "tie", "order": "given", **options}
    path = judge_to(tmp_path / "x.jsonl", [row], checking_length, **given)
    (judged,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (judged["verdict"], judged["scores"], judged.get("decided")) == expected
    assert [one.get("decided") for one in judged["criteria"]] == decided
    ((row_of_file, _),) = read_result_rows(path)
    said = [criterion_text(one).endswith(", undecided") for one in row_of_file.criteria]
    assert said == [one is False for one in decided]
    assert Rereading.of(path).changed == []
    edit(path, lambda rows: change_row(rows[0]))
    assert Rereading.of(path).changed


@pytest.mark.parametrize(("label", "correct"), [(0, 1.0), (1, 0.0)])
def test_a_guess_that_is_no_vote_is_none_under_another_label(
    label: int, correct: float, tmp_path: Path
) -> None:
    row = {"id": "x", "prompt": "p", "responses": ["a longer text", "text"], "criteria": RULES[:2]}
    path = judge_to(tmp_path / "x.jsonl", [row], checking_length, undecided="tie", order="given")
    ((judged, _),) = read_result_rows(path)
    assert (judged.verdict, judged.decided, judged.guess) == ("A", True, "")
    again = relabelled(judged, replace(row_task(judged), label=label))
    assert (again.verdict, again.correct) == ("A", correct)


_PLANNED = "<plan>count</plan><execution>c <answer> [[B]] </answer></execution><answer> [[A]] </answer>"
_CUT = "<plan>count</plan><execution>not closed <answer> [[A]] </answer>"


@pytest.mark.parametrize(("answer", "stop"), [(_PLANNED, "verdict"), (_CUT, "malformed")])
def test_a_dialogue_is_read_with_the_recorded_options(answer: str, stop: str, tmp_path: Path) -> None:
    options = {"format": "j1-pav", "options": {"seed_prompt": "plan"}, "tools": False}
    path = judge_to(tmp_path / "rows.jsonl", [ROW], always(answer), **options)
    record_settings(path, options)
    assert [row.stop for row, _ in read_result_rows(path)] == [stop]
    assert Rereading.of(path).changed == []
