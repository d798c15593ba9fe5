"""The shares of a batch's time, measured with a clock that the test sets."""

from __future__ import annotations

import asyncio

import pytest

from tirjudge.generation import base
from tirjudge.generation.base import BusyClock
from tirjudge_sandbox import Execution, Limits, Program, Status
from tirjudge_training.distributed import profiling
from tirjudge_training.distributed.profiling import PhaseTimer, shares_of_time, times
from tirjudge_training.rl import rollout_engine
from tirjudge_training.rl.rollout_engine import TimedSandbox


class Clock:
    """A replacement of the time module."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.now / 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    turned = Clock()
    for module in (base, rollout_engine, profiling):
        monkeypatch.setattr(module, "time", turned)
    return turned


class Held:
    """A sandbox whose programs end when the test says so, identified by their source."""

    capacity = 2

    def __init__(self) -> None:
        self.ends: dict[str, asyncio.Event] = {}

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        await self.ends.setdefault(program.source, asyncio.Event()).wait()
        return Execution(status=Status.OK)


async def turn(loops: int = 5) -> None:
    for _ in range(loops):
        await asyncio.sleep(0)


async def test_waiting_is_the_time_of_programs_without_generation(clock: Clock) -> None:
    """a runs from 0 to 10, b from 4 to 12, c from 20 to 21; the generator works from 2 to 8 and 11 to 15."""
    generator, held = BusyClock(), Held()
    sandbox = TimedSandbox(held, generating=lambda: generator.seconds)  # type: ignore[arg-type]
    first = asyncio.create_task(sandbox.run(Program(source="a")))
    await turn()
    clock.now = 2
    with generator.working():
        clock.now = 4
        second = asyncio.create_task(sandbox.run(Program(source="b")))
        await turn()
        clock.now = 8
    clock.now = 10
    held.ends["a"].set()
    await first
    assert sandbox.seconds == 0, "b is still running"
    clock.now = 11
    with generator.working():
        clock.now = 12
        held.ends["b"].set()
        await second
        assert sandbox.seconds == 12 - (8 - 2) - (12 - 11)
        clock.now = 15
    clock.now = 20
    third = asyncio.create_task(sandbox.run(Program(source="c")))
    await turn()
    clock.now = 21
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert sandbox.seconds == 5 + 1


def test_the_phases_of_a_batch_add_up(clock: Clock) -> None:
    timer = PhaseTimer()
    for part, end in {"refresh": 1, "rollout": 8, "logprobs": 10, "record": 11, "train": 16}.items():
        clock.now = end
        timer.end(part)
    found = times([timer.parts, timer.parts])
    assert found["seconds/step"] == 16
    assert found["seconds/rollout"] == 7
    assert found["cpu_seconds/rollout"] == 7, "two processes that each took half of the time"
    shares = shares_of_time(found | {"seconds/generating": 4, "seconds/waiting": 2})
    assert shares == {"share/generation": 4 / 16, "share/sandbox": 2 / 16, "share/training": (2 + 5) / 16}


def test_a_phase_that_comes_twice_counts_twice(clock: Clock) -> None:
    timer = PhaseTimer()
    # The trainer's passes for logprobs come before and after the record of a batch.
    for part, end in (("logprobs", 7), ("record", 8), ("logprobs", 10)):
        clock.now = end
        timer.end(part)
    assert {name: wall for name, (wall, _) in timer.parts.items()} == {"logprobs": 9, "record": 1}
    assert times([timer.parts])["seconds/step"] == 10
