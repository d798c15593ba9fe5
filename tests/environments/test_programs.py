"""Programs of a dialogue: the text that a model sees of an execution, and recorded executions."""

from __future__ import annotations

import pytest

from tirjudge_environments import RunCode, TirPairwise
from tirjudge_environments.programs.outputs import output_text
from tirjudge_environments.programs.recording import RecordingSandbox, ReplaySandbox
from tirjudge_environments.quoting import cut_middle
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_sandbox import Execution, Program, Status


@pytest.mark.parametrize(
    ("execution", "shown"),
    [
        (
            Execution(status=Status.WALL_LIMIT, signal=9, stdout="half\n"),
            "TimeoutError: the program was stopped at its wall clock limit\n"
            "What it had printed by then, unfinished:\nhalf",
        ),
        (
            Execution(status=Status.SIGNAL, signal=6, stdout="half\n"),
            "the program was ended by SIGABRT\nWhat it had printed by then, unfinished:\nhalf",
        ),
        (
            Execution(status=Status.MEMORY_LIMIT, signal=9),
            "MemoryError: the program was stopped at its memory limit",
        ),
        (Execution(status=Status.SIGNAL, signal=99), "the program was ended by signal 99"),
    ],
)
def test_output_or_one_line_about_the_error(execution: Execution, shown: str) -> None:
    assert output_text(execution, 2000) == shown


def test_a_failed_sandbox_is_never_shown() -> None:
    with pytest.raises(ValueError, match="never shown"):
        output_text(Execution(status=Status.SANDBOX_FAILED, detail="the worker is gone"), 2000)


def test_a_long_output_is_truncated_in_the_middle_with_a_count() -> None:
    assert cut_middle("0123456789", 5) == "012\n... 5 characters left out ...\n89"
    assert cut_middle("0123456789", 10) == "0123456789"


def test_a_fence_inside_an_output_is_quoted() -> None:
    execution = Execution(status=Status.OK, exit_code=0, stdout="```python\n1\n  ````\na ``` b\n``\n")
    request = RunCode("")
    assert TirPairwise().show(request, execution) == (
        "```output\n> ```python\n1\n>   ````\na ``` b\n``\n```\n"
    )
    assert TirPairwise(exact=True).show(request, execution) == (
        "```output\n```python\n1\n  ````\na ``` b\n``\n```\n"
    )


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


async def test_what_one_sandbox_recorded_another_replays() -> None:
    """A failure and its retry are two executions, as they are when a session replays them."""
    down = Execution(status=Status.SANDBOX_FAILED, detail="no worker")
    recorded = RecordingSandbox(ReplaySandbox([down, ONE]))
    for source in ("a", "a"):
        await recorded.run(Program(source=source))
    assert recorded.executions == [down, ONE]
    assert await outputs(ReplaySandbox(recorded.executions), "a", "a") == ["sandbox_failed: no worker", "1\n"]
