"""The conformance suites of tirjudge, run on this package's format and sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tirjudge_environments import JudgeTask, Message, open_environment
from tirjudge_environments.testing import check_environment
from tirjudge_sandbox import Sandbox, open_sandbox
from tirjudge_sandbox.testing import CHECKS

TASK = JudgeTask(id="1", prompt=(Message("user", "In a word?"),), candidates=("Yes.", "Well, no."), label=0)


async def test_the_environment() -> None:
    await check_environment(open_environment("checked"), TASK)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_sandbox(check: Callable[[Sandbox], Awaitable[None]], tmp_path: Path) -> None:
    async with open_sandbox("kept", record=str(tmp_path / "programs.jsonl"), capacity=1, preload=()) as box:
        await check(box)
