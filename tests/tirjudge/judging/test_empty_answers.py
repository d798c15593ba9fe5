"""Empty answers: they lose in pairs and lists, checkers come first, and other judges see them as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judged_files import edit, judge_to
from tirjudge import Judge
from tirjudge.best_of_n import best_of
from tirjudge.evaluation.judged_rows import decision
from tirjudge.evaluation.stored_outputs.reading import open_replay
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.group_rewards import GroupOptions
from tirjudge.judging.rereading import Rereading
from tirjudge_environments import Context

CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLED = [{"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "assistant", "content": ""}]
SILENT = [{"role": "assistant", "content": " "}]
FULL = "an answer"


def first(context: Context) -> str:
    """Prefer the response that is shown first, without a program."""
    return "<preference>A</preference><score>9</score>"


def judged(responses: Sequence[Any], tmp_path: Path, **options: Any) -> dict[str, Any]:
    more = {name: options.pop(name) for name in ("files", "criteria") if name in options}
    row = {"id": "x", "prompt": "p", "responses": list(responses), **more}
    given = {"undecided": "tie", "order": "given", **options}
    path = judge_to(tmp_path / "x.jsonl", [row], first, **given)
    (found,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert Rereading.of(path).changed == []
    (score,) = open_replay([path])
    assert list(decision(score)) == _places(found, len(responses))
    return dict(found)


def _places(row: dict[str, Any], count: int) -> list[int]:
    if row["verdict"] != "tie":
        return [row["choice"]]
    dialogues = [one for one in row["views"] if one["view"] != "empty"]
    return sorted({index for one in dialogues for index in one["order"]}) or list(range(count))


@pytest.mark.parametrize(
    ("responses", "more", "verdict", "decided", "views"),
    [
        (["", FULL], {}, "B", True, ["empty"]),
        ([FULL, " \n\t"], {}, "A", True, ["empty"]),
        ([FULL, "\u200b\ufeff\u2800\u3164\u00ad\x07"], {}, "A", True, ["empty"]),
        (["", "  "], {}, "tie", False, ["empty"]),
        ([SILENT, CALLED], {}, "B", True, ["empty"]),
        (["", ""], {"files": [{}, {"a.txt": {"text": "x"}}]}, "B", True, ["empty"]),
        (["", FULL], {"samples": 3}, "B", True, ["empty"] * 3),
        (["", FULL], {"order": "both"}, "B", True, ["empty"]),
        (["", FULL, ""], {}, "B", True, ["empty"]),
        # The others are judged among themselves, here by a guess.
        (["", FULL, "another"], {}, "tie", False, ["empty", "BC"]),
        (["", FULL, "another"], {"undecided": "guess"}, "B", False, ["empty", "BC"]),
        ([FULL, "another", ""], {"undecided": "guess", "order": "both"}, "tie", False, ["empty", "AB", "BA"]),
        (["1", "", "2", "3"], {"undecided": "guess"}, "A", False, ["empty", "ACD"]),
        (["", FULL], {"format": "j1-pav", "undecided": "guess"}, "B", True, ["empty"]),
        # A prompt may ask for silence, and the paper's judge sees every answer.
        (["", FULL], {"judge_empty": True, "undecided": "guess"}, "A", False, ["AB"]),
        (["", FULL], {"exact": True, "undecided": "guess"}, "A", None, ["AB"]),
        (
            ["", FULL],
            {"options": {"exact": True}, "format": "tir-pairwise", "undecided": None},
            "A",
            None,
            ["AB"],
        ),
        (["", FULL], {"options": {"exact": "False"}, "format": "tir-pairwise"}, "B", True, ["empty"]),
    ],
)
def test_an_empty_answer_loses(
    responses: list[Any],
    more: dict[str, Any],
    verdict: str,
    decided: bool | None,
    views: list[str],
    tmp_path: Path,
) -> None:
    row = judged(responses, tmp_path, **more)
    assert (row["verdict"], row.get("decided")) == (verdict, decided)
    assert [one["view"] for one in row["views"]] == views
    if views[0] == "empty":
        assert row["views"][0]["detail"].startswith("no visible text, file or tool call: ")


def test_a_criterion_is_not_satisfied_by_an_empty_answer(tmp_path: Path) -> None:
    row = judged(["", FULL], tmp_path, criteria=["is kind", "is short"])
    assert (row["verdict"], row["scores"], row["decided"]) == ("B", [0.0, 1.0], True)
    (tmp_path / "alone").mkdir()
    row = judged(["", FULL, "more"], tmp_path / "alone", criteria=["is kind"], format="tir-pointwise")
    assert [one["satisfied"][0] for one in row["criteria"]] == [0.0]


def test_an_edited_verdict_of_the_rule_is_found(tmp_path: Path) -> None:
    row = {"id": "x", "prompt": "p", "responses": ["", FULL]}
    path = judge_to(tmp_path / "x.jsonl", [row], first)

    def swap(rows: list[dict[str, Any]]) -> None:
        rows[0]["views"][0]["verdict"]["choice"] = 0
        rows[0] |= {"verdict": "A", "choice": 0}

    edit(path, swap)
    assert [one.place for one in Rereading.of(path).changed] == ["empty"]


@pytest.mark.parametrize("method", ["round-robin", "listwise"])
def test_an_empty_completion_is_not_paid(method: str) -> None:
    with Judge(generator=ScriptedGenerator(first), undecided="tie", backend_options={"preload": []}) as judge:
        found = judge.reward_group("p", ["", FULL], GroupOptions(method="round-robin"))
        # By the rule, without a program.
        assert (found.rewards, found.decided) == ((0.0, 1.0), 0)
        group = judge.reward_group("p", ["", FULL, "another"], GroupOptions(method=method))
    assert group.rewards[0] == 0.0
    assert group.rewards[1] == group.rewards[2] > 0.0


@pytest.mark.parametrize("method", ["pairwise", "round-robin"])
def test_an_empty_candidate_is_not_the_best_of_n(method: str) -> None:
    with Judge(generator=ScriptedGenerator(first), order="given", backend_options={"preload": []}) as judge:
        assert best_of(judge, "p", ["", FULL, " "], method).choice == 1
    with Judge(
        generator=ScriptedGenerator(first), order="given", judge_empty=True, backend_options={"preload": []}
    ) as judge:
        assert best_of(judge, "p", ["", FULL], method).choice == 0
