"""Checkers in the real sandbox: many rows in one program, and rows and files that want to do harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tirjudge_environments.checkers import Case, Checker, CheckerRunner, CheckersDown
from tirjudge_environments.checkers.runner import program_of
from tirjudge_environments.programs.recording import RecordingSandbox
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status, open_sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened() -> AsyncIterator[Sandbox]:
    async with open_sandbox("local", capacity=2, preload=[]) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(opened: Sandbox) -> RecordingSandbox:
    return RecordingSandbox(opened)


def checker(body: str, rule: str = "a rule", parameters: str = "") -> Checker:
    source = f"def check(response, prompt{parameters}):\n    {body}\n"
    return Checker(name="c", rule=rule, source=source)


def cases(*responses: str, **values: Any) -> list[Case]:
    return [Case(response, "the prompt", values) for response in responses]


@pytest.mark.asyncio(loop_scope="module")
async def test_rows_of_many_callers_share_a_program(sandbox: RecordingSandbox) -> None:
    words = checker("return len(response.split()) >= n", "{n:number} words", ", n")
    runner = CheckerRunner(sandbox)
    found = await asyncio.gather(
        *(runner.run(words, cases("one two", "one", "", " \n", n=number % 3)) for number in range(30))
    )
    passed = [[one.passed for one in outcomes] for outcomes in found]
    wanted = {0: [True, True, True, True], 1: [True, True, False, False], 2: [True, False, False, False]}
    assert passed == [wanted[number % 3] for number in range(30)]
    assert len(sandbox.executions) == 1
    again = await runner.run(words, cases("one two three", n=3))
    assert [one.passed for one in again] == [True]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return 1 / 0 if 'bad' in response else True", "ZeroDivisionError: division by zero"),
        ("return response if 'bad' in response else True", "it returned str, and not True, False or None"),
        ("import os\n    if 'bad' in response: os._exit(0)\n    return True", "it printed something"),
        ("raise SystemExit(3) if 'bad' in response else ValueError()", "SystemExit"),
        ("import os\n    if 'bad' in response: os.write(1, b'[true, true]')\n    return True", "it printed"),
        ("while 'bad' in response: pass\n    return True", "cpu_limit"),
        ("return bytearray(1 << 40) if 'bad' in response else True", "MemoryError"),
        ("return open('/etc/passwd').read() if 'bad' in response else True", "FileNotFoundError"),
    ],
)
async def test_a_row_that_fails_abstains_and_costs_no_other_row_its_outcome(
    body: str, fault: str, sandbox: RecordingSandbox
) -> None:
    found = await CheckerRunner(sandbox).run(checker(body), cases("good", "bad", "good too"))
    if "ValueError()" not in body:
        assert [one.passed for one in found] == [True, None, True]
    assert found[1].passed is None
    assert fault in found[1].fault or fault == "SystemExit"


@pytest.mark.asyncio(loop_scope="module")
async def test_no_row_sees_another_and_printing_changes_nothing(sandbox: RecordingSandbox) -> None:
    source = (
        "import random\nseen = []\n\ndef check(response, prompt):\n"
        "    print('[true]')\n    seen.append(response)\n"
        "    return len(seen) == 1 and prompt == 'the prompt' and random.random() == 0.8444218515250481\n"
    )
    counting = Checker(name="c", rule="a rule", source=source)
    found = await CheckerRunner(sandbox).run(counting, cases("a", "b", "c"))
    assert [one.passed for one in found] == [True, True, True]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_recorded_program_of_a_row_prints_its_outcome(sandbox: RecordingSandbox) -> None:
    words = checker(
        "return None if 'x' in response else response.count(w) >= n", "{n:number} times {w}", ", n, w"
    )
    for response, printed in (("a'\"\n a'\"\n", "True"), ("a", "False"), ("x", "None"), (" ", "False")):
        case = Case(response, "the prompt", {"w": "a'\"\n", "n": 2})
        (outcome,) = await CheckerRunner(sandbox).run(words, [case])
        assert str(outcome.passed) == printed
        assert (await sandbox.run(program_of(words, case))).stdout == f"{printed}\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_an_outcome_does_not_depend_on_the_rows_beside_it(sandbox: RecordingSandbox) -> None:
    """Rows that end the shared program fail alone, each with its own fault; all other rows are decided."""
    body = (
        "import os\n    if 'exit' in response: os._exit(3)\n"
        "    if 'print' in response: os.write(1, b'x')\n    return 'good' in response"
    )
    rows = ["exit"] * 4 + ["print"] * 3 + ["good", "bad"] + ["print"] + ["exit"] * 5 + ["good"]
    alone = {row: (await CheckerRunner(sandbox).run(checker(body), cases(row)))[0] for row in set(rows)}
    found = await CheckerRunner(sandbox).run(checker(body), cases(*rows))
    assert found == [alone[row] for row in rows]
    assert {row: one.passed for row, one in alone.items()} == {
        "exit": None,
        "print": None,
        "good": True,
        "bad": False,
    }


@pytest.mark.asyncio(loop_scope="module")
async def test_a_row_has_the_same_seconds_alone_and_beside_others(sandbox: RecordingSandbox) -> None:
    body = "import time\n    while 'slow' in response and time.process_time() < 2: pass\n    return True"
    alone = [(await CheckerRunner(sandbox).run(checker(body), cases(row)))[0] for row in ("slow", "good")]
    assert [one.passed for one in alone] == [None, True]
    assert await CheckerRunner(sandbox).run(checker(body), cases("slow", "good")) == alone


async def test_a_failed_sandbox_is_no_outcome() -> None:
    class Broken:
        capacity = 1

        async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
            return Execution(status=Status.SANDBOX_FAILED, detail="no worker")

    with pytest.raises(CheckersDown, match="no worker"):
        await CheckerRunner(Broken()).run(checker("return True"), cases("a"))  # type: ignore[arg-type]
