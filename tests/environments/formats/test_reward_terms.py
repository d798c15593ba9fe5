"""Terms that a recipe adds to the reward of a judge format, and options that only the reward uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tirjudge_environments import (
    Episode,
    Evidence,
    Reward,
    StopReason,
    Unscored,
    Usage,
    environment_names,
    open_environment,
)
from tirjudge_environments.formats import reward_terms
from tirjudge_environments.formats.reward_terms import Scored, Term
from tirjudge_environments.programs.evidence import evidence_of
from tirjudge_environments.registry import environment_options, reward_options

WRITTEN = {
    "tir-pairwise": ("<preference>A</preference>", 1.0, {"correct", "format", "tool"}),
    "j1-pav": ("<think>why</think><answer> [[A]] </answer>", 1.0, {"correct", "format"}),
    "rm-r1": ("<answer>[[A]]</answer>", 1.0, {"correct"}),
    "judgelrm-pair": (
        "</think><answer>8</answer><answer>3</answer>",
        4.2,
        {"format", "relation", "absolute", "confidence"},
    ),
}
"""By format: a right answer, its reward by the paper, and the parts of the reward."""


def score(judge: Any, task: Any, trajectory: Any) -> Any:
    [[found]] = judge.score([Episode(task, 0, (trajectory,))], {})
    return found


@pytest.mark.parametrize("name", WRITTEN)
async def test_an_added_term_is_a_part_and_changes_the_total_alone(name: str, make_task, play) -> None:
    """JudgeLRM's Eq. 9 with a weight of .5: +.1 above 120 tokens, -.5 for a dialogue that was cut."""
    text, paper, parts = WRITTEN[name]
    judge = open_environment(name, order="given", reward_terms={"length": 0.5})
    task = make_task(gold={"scores": [8, 3]})
    said = replace(await play(judge, task, [text]), usage=Usage(9, 121))
    found = score(judge, task, said)
    assert found.total == pytest.approx(paper + 0.1)
    assert found.parts.keys() == {*parts, "length"}
    assert found.parts["length"] == 0.2
    assert found.right
    assert found.teaches
    # What supervised training learns from does not depend on it.
    assert found.full(paper)
    assert not found.full(paper + 0.05)
    short = score(judge, task, replace(said, usage=Usage(9, 5)))
    assert (short.total, short.parts["length"]) == (pytest.approx(paper), 0.0)
    assert isinstance(score(judge, task, replace(said, usage=Usage())), Unscored)
    cut = replace(said, stop=StopReason.TOKEN_BUDGET, verdict=None)
    plain = open_environment(name, order="given")
    assert score(judge, task, cut).total == pytest.approx(score(plain, task, cut).total - 0.5)


def test_what_is_learned_must_be_right_whatever_the_total_is() -> None:
    """The reward of RM-R1's Eq. 11 is 1 for a wrong answer in the right form."""
    assert not Reward(1.0, {}, right=False, teaches=False).full(1.0)
    assert not Reward(5.0, {}, right=True, teaches=False).full(1.0)
    assert Reward(0.2, {}, right=True, teaches=True, core=1.0).full(1.0)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tir-pairwise", {"lenght": 1.0}, "no reward term 'lenght'; there are length"),
        ("judgelrm-pair", {"length": 1.0}, "reward_terms: this reward has a term 'length' of its own"),
    ],
)
def test_a_term_that_cannot_be_added_is_refused_in_one_line(name: str, options, message: str) -> None:
    more = {"length": True} if name == "judgelrm-pair" else {}
    with pytest.raises(ValueError, match=message) as refused:
        open_environment(name, reward_terms=options, **more)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [1.5, float("nan")])
async def test_a_value_outside_the_range_of_a_term_is_an_error(
    value: float, make_task, play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_terms, "length", Term(lambda seen: value))
    judge, task = open_environment("rm-r1", order="given", reward_terms={"length": 1.0}), make_task()
    said = await play(judge, task, ["<answer>[[A]]</answer>"])
    with pytest.raises(RuntimeError, match=r"the reward term 'length' is (1\.5|nan), outside its range"):
        score(judge, task, said)


async def test_a_term_sees_the_verdict_and_the_dialogue(
    make_task, play, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Scored] = []

    def watched(one: Scored) -> float:
        seen.append(one)
        return 1.0

    monkeypatch.setattr(reward_terms, "length", Term(watched))
    judge = open_environment(
        "tir-pairwise", order="given", evidence="required", reward_terms={"length": 0.25}
    )
    task = make_task()
    said = await play(judge, task, ["<preference>A</preference>"])
    assert evidence_of(said) is Evidence.MISSING
    assert score(judge, task, said).total == 0.25
    [one] = seen
    assert (one.task, one.trajectory, one.right, one.teaches) == (task, said, True, False)


NOT_OF_THE_REWARD = {
    "tir": {"tools", "tools_by_domain", "prompts", "bindings", "exact", "protocol", "further_tools"}
    | {"output_chars", "shown_chars", "isolated", "per_criterion", "prepared", "name_variables"},
    "all": {"boundary"},
    "order": {"order", "seed"},
    "rm-r1": {"style", "variant"},
    "j1-pav": {"seed_prompt"},
}
"""The options that change a prompt, a view or how a verdict is read, from the tables of docs/judges.md."""


@pytest.mark.parametrize("name", [name for name in environment_names() if "." not in name])
def test_the_options_of_the_reward_are_all_others(name: str) -> None:
    family = "tir" if name.startswith(("tir-", "checks-")) else name
    others = NOT_OF_THE_REWARD["all"] | NOT_OF_THE_REWARD["order"] | NOT_OF_THE_REWARD.get(family, set())
    marked = reward_options(open_environment(name))
    assert marked == environment_options(name) - others
    assert "reward_terms" in marked
