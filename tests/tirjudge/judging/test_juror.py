"""The formats in which models with and without a training are asked, alone and in one jury."""

from __future__ import annotations

from typing import Any

import pytest

from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.judge_model import JudgeModel, undecided_verdicts
from tirjudge.judging.juror import Juror
from tirjudge.judging.jury import Jury
from tirjudge.judging.options import JudgeOptions
from tirjudge.models.resolve import ModelNote, Undecided
from tirjudge_environments import Context, JudgeTask, Message
from tirjudge_sandbox import open_sandbox

PAIR = JudgeTask(id="p", prompt=(Message("user", "Shout."),), candidates=("No", "no!"), label=1)
COUNT = "```python\nprint('A' if '!' in response_a else 'B')\n```\n"
CHECK = "```python\ndef check(response):\n    return ['!' in response]\n```\n"


def answered(context: Context) -> str:
    """Run a program of the kind that the prompt asks for, and believe its output."""
    asked = context.prompt.messages[-1].content
    if not context.segments:
        return CHECK if "check(response)" in asked else COUNT
    return "<preference>B</preference>"


def juror(sandbox: Any, trained: dict[str, Any], format: str = "") -> Juror:
    note = ModelNote(formats=trained) if trained else ModelNote()
    options = JudgeOptions(model="m", base_url="http://localhost/v1", format=format, order="given")
    return Juror(JudgeModel("m", note, ScriptedGenerator(answered)), options, sandbox)


@pytest.mark.parametrize(
    ("trained", "given", "expected"),
    [
        ({}, "", "checks"),
        ({}, "tir", "tir"),
        ({}, "checks", "checks"),
        ({"checks-pairwise": {}}, "", "checks"),
        ({"tir-pairwise": {}}, "checks", "tir"),
        ({"checks-pairwise": {}}, "tir", "checks"),
        ({"tir-pairwise": {}}, "checks-pairwise", "checks"),
        ({"tir-pairwise": {}, "checks-pairwise": {}}, "", "tir"),
        ({"tir-pairwise": {}, "checks-pairwise": {}}, "checks", "checks"),
    ],
)
async def test_a_family_is_for_models_that_were_trained_for_no_other(
    trained: dict[str, Any], given: str, expected: str
) -> None:
    async with open_sandbox("local", preload=(), capacity=1) as sandbox:
        one = juror(sandbox, trained, given)
        named = given if given.endswith("pairwise") else f"{given}-pairwise" if given else "pairwise"
        judged = await one.judge(named, PAIR)
    [trajectory] = judged.trajectories
    assert trajectory.calls[0].request.is_check == (expected == "checks")
    assert judged.verdict == "B"


async def test_one_jury_may_have_both_formats() -> None:
    async with open_sandbox("local", preload=(), capacity=1) as sandbox:
        jury = Jury([juror(sandbox, {"tir-pairwise": {}}, "checks"), juror(sandbox, {}, "checks")])
        judged = await jury.judge("checks-pairwise", PAIR)
    assert [one.calls[0].request.is_check for one in judged.trajectories] == [False, True]
    assert (judged.verdict, judged.decided) == ("B", True)


@pytest.mark.parametrize(
    ("notes", "given", "expected"),
    [
        (["tie", "tie"], None, "tie"),
        (["tie", "guess"], None, "guess"),
        (["guess", "tie"], "tie", "tie"),
        (["tie", "tie"], "guess", "guess"),
    ],
)
def test_a_jury_has_ties_if_all_its_models_have(notes: list[Undecided], given: Any, expected: str) -> None:
    options = JudgeOptions(model="a", jury=["b"], base_url="http://localhost/v1", undecided=given)
    assert undecided_verdicts(options, [ModelNote(undecided=one) for one in notes]) == expected
