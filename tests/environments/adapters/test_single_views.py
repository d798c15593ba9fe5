"""Views and scores for frameworks that score one rollout at a time; linked judges are refused."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.environments.adapters.dialogues import ASK, ROW, A, settings
from tirjudge_environments import Unscored
from tirjudge_environments.adapters.dialogues import (
    ChatDialogue,
    LinkedViews,
    ToolDialogue,
    reward_of,
    row_view,
)
from tirjudge_environments.adapters.trl import JudgeEnv, judge_reward
from tirjudge_environments.registry import open_environment
from tirjudge_environments.tasks import read_task
from tirjudge_sandbox import Execution, Limits, Program, Status

TASK = read_task(ROW, default_id="row")


async def broken(program: Program, limits: Limits = Limits()) -> Execution:
    return Execution(status=Status.SANDBOX_FAILED, detail="no such machine")


def test_a_row_names_its_view_if_each_is_scored_alone() -> None:
    both = open_environment("tir-pairwise", order="both")
    first, second = both.views(TASK)
    assert row_view(both, TASK, ROW | {"view": second.name}, "verl") == second
    with pytest.raises(ValueError, match=rf"'pair-1' has the views {first.name}, {second.name}.*`view`"):
        row_view(both, TASK, ROW, "verl")


@pytest.mark.parametrize(
    ("name", "options", "refused"),
    [
        ("tir-pairwise", {"order": "both"}, False),
        ("tir-pointwise", {}, True),
        ("j1-pav", {}, False),
        ("j1-pav", {"consistency": True}, True),
        ("j1-pos", {}, True),
        ("judgelrm-pair", {}, False),
        ("rm-r1", {}, False),
    ],
)
def test_exactly_the_judges_whose_rewards_compare_rollouts_are_refused(
    name: str, options: dict[str, Any], refused: bool
) -> None:
    judge = open_environment(name, **options)
    view = judge.views(TASK)[0]
    with pytest.raises(LinkedViews) if refused else nullcontext():
        assert row_view(judge, TASK, ROW | {"view": view.name}, "verl") == view


def test_the_refusal_names_the_framework_and_what_can_train_such_a_judge() -> None:
    linked = open_environment("tir-pointwise")
    with pytest.raises(LinkedViews, match="links the views of a task, and verl scores one rollout at a time"):
        row_view(linked, TASK, ROW, "verl")


async def test_a_failed_sandbox_gives_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ChatDialogue(settings(), ROW, framework="OpenEnv")
    monkeypatch.setattr(text._thread.sandbox, "run", broken)
    reply = text.step(ASK.fenced())
    assert isinstance(reply.score, Unscored)
    with pytest.raises(RuntimeError, match=r"'pair-1' cannot be scored: .*no such machine"):
        reward_of(reply.score, text.task)

    native = settings(options={"order": "given", "protocol": "tool"})
    env = JudgeEnv(native)
    env._dialogue = ToolDialogue(native, ROW, framework="TRL")
    env.run_python("print(1)")
    calls = [{"function": {"name": "run_python", "arguments": {"code": "print(1)"}}}]
    said = [{"role": "assistant", "content": "", "tool_calls": calls}, {"role": "assistant", "content": A}]
    assert judge_reward([said], [env]) == [None]
