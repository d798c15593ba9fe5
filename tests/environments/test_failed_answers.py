"""Answers that ended for an unknown reason, and turns that pause without end, in judge sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tirjudge_environments import (
    Completion,
    Continue,
    Finish,
    JudgeSession,
    StopReason,
    TirPairwise,
    Usage,
    Verdict,
)
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import Execution, Status

RIGHT = "<preference>A</preference>"
PROGRAM = "```python\nprint(1)\n```\n"
OK = Execution(status=Status.OK, exit_code=0, stdout="1\n", cpu_seconds=1.0)
Start = Callable[..., JudgeSession]


@pytest.fixture
def start(make_task) -> Start:
    def session(environment=None, **options) -> JudgeSession:
        environment, task = environment or TirPairwise(order="given"), make_task()
        view = environment.views(task)[0]
        return JudgeSession(environment, task, view, fixed_sandbox(OK), **options)

    return session


def unknown(text: str) -> Completion:
    return Completion(text=text, finish=Finish.UNKNOWN, finish_word="ponies", usage=Usage(10, 2))


def ended(text: str, **fields) -> Completion:
    return Completion(text=text, finish=Finish.END, usage=Usage(10, 2), **fields)


async def test_a_whole_verdict_or_program_is_accepted_whatever_the_end_is_called(start: Start) -> None:
    session = start()
    await session.step(unknown(PROGRAM))
    await session.step(unknown(RIGHT))
    assert (session.trajectory.stop, session.trajectory.verdict) == (StopReason.VERDICT, Verdict(choice=0))


async def test_only_failures_in_a_row_count(start: Start) -> None:
    session = start()
    for completion in (unknown("A"), ended(PROGRAM), unknown("A"), ended(RIGHT)):
        await session.step(completion)
    assert session.trajectory.stop is StopReason.VERDICT


async def test_a_turn_that_stopped_at_a_fence_is_asked_for_without_stop_strings(start: Start) -> None:
    session = start()
    await session.step(Completion(text="```json\n{}\n```\n", finish=Finish.STOP))
    assert session.context == replace(session.context, prompt=replace(session.prompt, stop=()), segments=())
    # Some servers report a stop string that they were not given.
    await session.step(Completion(text=f"```json\n{{}}\n```\n{RIGHT}", finish=Finish.STOP))
    assert session.trajectory.stop is StopReason.VERDICT
    assert session.trajectory.prompt.stop


class Patient(TirPairwise):
    """A format that lets its judge go on after every turn without a verdict."""

    def read(self, task, view, completion):
        reading = super().read(task, view, completion)
        return reading if isinstance(reading, Verdict) else Continue()


@pytest.mark.parametrize(
    ("text", "turns", "detail"),
    [
        (lambda number: f"This is thought number {number}. ", 4, "paused 4 times"),
        (lambda number: "The same thought. ", 2, "repeats its text"),
    ],
)
async def test_a_text_only_dialogue_cannot_pause_for_ever(
    start: Start, text: Callable[[int], str], turns: int, detail: str
) -> None:
    session = start(Patient(order="given"))
    asked = 0
    while not session.done:
        await session.step(ended(text(asked)))
        asked += 1
    assert asked == turns
    assert session.trajectory.stop is StopReason.MALFORMED
    assert detail in session.trajectory.detail


async def test_a_text_that_was_set_aside_joins_its_turn_once(start: Start) -> None:
    session = start(Patient(order="given"))
    await session.step(ended("First. "))
    await session.step(Completion(text="```json\n{}\n```\n", finish=Finish.STOP))
    assert [segment.text for segment in session.context.segments] == ["First. "]
    await session.step(ended(""))
    assert [segment.text for segment in session.context.segments] == ["First. ```json\n{}\n```\n"]


async def test_a_judge_with_token_ids_may_write_a_fence_more_often(start: Start) -> None:
    session = start()
    asked = 0
    while not session.done:
        await session.step(Completion(text="```\n1\n```\n", finish=Finish.STOP, token_ids=(1, 2)))
        asked += 1
    assert asked == 17
    assert session.trajectory.stop is StopReason.MALFORMED


@pytest.mark.parametrize("again", ["**A**", PROGRAM, ""])
async def test_the_verdict_is_asked_for_once(start: Start, again: str) -> None:
    session = start(ask_for_verdict=True)
    await session.step(ended("**A** is better."))
    await session.step(ended(again))
    assert (session.trajectory.stop, session.trajectory.verdict) == (StopReason.MALFORMED, None)


async def test_strict_reading_is_the_rule_with_token_ids(start: Start) -> None:
    session = start(ask_for_verdict=True)
    await session.step(ended("**A** is better.", token_ids=(1,)))
    assert session.trajectory.stop is StopReason.MALFORMED
