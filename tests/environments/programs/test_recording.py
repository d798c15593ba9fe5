"""Recorded executions replayed in order, and what a dialogue that departs from them gets."""

from __future__ import annotations

import pytest

from tirjudge_environments.programs.recording import RecordingSandbox, ReplaySandbox
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import Execution, Limits, Program, Status

ONE, TWO = (Execution(status=Status.OK, exit_code=0, stdout=text) for text in ("1\n", "2\n"))


async def outputs(box: ReplaySandbox, *sources: str) -> list[str]:
    """Return the output of each program, or `sandbox_failed: ` and the reason."""
    executions = [await box.run(Program(source=source)) for source in sources]
    return [
        f"{one.status}: {one.detail}" if one.status is Status.SANDBOX_FAILED else one.stdout
        for one in executions
    ]


async def test_executions_are_replayed_in_order_and_end_with_a_failure() -> None:
    found = await outputs(ReplaySandbox([ONE, TWO]), "a", "b", "c", "d")
    assert found == ["1\n", "2\n", *["sandbox_failed: the recording has no further execution"] * 2]


async def test_the_last_execution_is_repeated_on_request() -> None:
    assert await outputs(fixed_sandbox(ONE, TWO), "a", "b", "c", "d") == ["1\n", "2\n", "2\n", "2\n"]
    assert await outputs(fixed_sandbox(), "a", "b") == ["42\n", "42\n"]
    (nothing,) = await outputs(ReplaySandbox([], repeat_last=True), "a")
    assert nothing == "sandbox_failed: the recording has no further execution"


async def test_another_program_than_the_recorded_one_fails_and_consumes_nothing() -> None:
    box = ReplaySandbox([ONE, TWO], sources=["a\n", "b"])
    other = "sandbox_failed: the recording has the execution of another program at this point"
    assert await outputs(box, "b", "b", " a", "b\n") == [other, other, "1\n", "2\n"]


async def test_every_request_is_kept_with_its_limits() -> None:
    box = ReplaySandbox([ONE])
    limits = Limits(wall_seconds=3)
    await box.run(Program(source="a", seed=7), limits)
    await box.run(Program(source="b"))
    assert [(one.source, one.seed) for one in box.programs] == [("a", 7), ("b", 0)]
    assert box.limits == [limits, Limits()]


def test_executions_and_sources_have_the_same_number() -> None:
    with pytest.raises(ValueError, match=r"^2 executions need as many sources, not 1$"):
        ReplaySandbox([ONE, TWO], sources=["a"])


async def test_what_one_sandbox_recorded_another_replays() -> None:
    """A failure and its retry are two executions, as they are when a session replays them."""
    down = Execution(status=Status.SANDBOX_FAILED, detail="no worker")
    recorded = RecordingSandbox(ReplaySandbox([down, ONE]))
    for source in ("a", "a"):
        await recorded.run(Program(source=source))
    assert recorded.executions == [down, ONE]
    assert await outputs(ReplaySandbox(recorded.executions), "a", "a") == ["sandbox_failed: no worker", "1\n"]
