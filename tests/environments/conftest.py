"""Fixtures: tasks to judge, and dialogues played from scripted turns of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tirjudge_environments import (
    Budget,
    Completion,
    Environment,
    Finish,
    JudgeSession,
    JudgeTask,
    Message,
    Trajectory,
)
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import Execution, Status


def ok(stdout: str = "42\n") -> Execution:
    return Execution(status=Status.OK, exit_code=0, stdout=stdout, cpu_seconds=0.5)


@pytest.fixture
def make_task() -> Callable[..., JudgeTask]:
    def make(*candidates: str, **changes: Any) -> JudgeTask:
        fields: dict[str, Any] = {
            "id": "task-1",
            "prompt": (Message("user", "Say hello."),),
            "candidates": candidates or ("hello", "goodbye"),
            "label": 0,
        }
        return JudgeTask(**fields | changes)

    return make


@pytest.fixture
def play() -> Callable[..., Any]:
    """Play one view: every turn but the last pauses at a stop string, and the last one ends by itself."""

    async def play(
        environment: Environment,
        task: JudgeTask,
        turns: Sequence[str],
        *,
        view: int = 0,
        executions: Sequence[Execution] = (ok(),),
        last: Finish = Finish.END,
        budget: Budget = Budget(),
    ) -> Trajectory:
        box = fixed_sandbox(*executions)
        session = JudgeSession(environment, task, environment.views(task)[view], box, budget=budget)
        for number, text in enumerate(turns, start=1):
            assert not session.done, f"the dialogue ended before turn {number}"
            await session.step(Completion(text=text, finish=last if number == len(turns) else Finish.STOP))
        return session.trajectory

    return play
