"""Checkers in the real sandbox: outcomes, and responses and checkers that want to do harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tirjudge_environments.checkers.file import Checker
from tirjudge_environments.checkers.runner import Case, CheckerRunner, CheckersDown, program_of
from tirjudge_environments.programs.checks import CheckOutcome
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
async def test_responses_of_many_callers_have_their_own_outcomes(sandbox: RecordingSandbox) -> None:
    words = checker("return len(response.split()) >= n", "{n:number} words", ", n")
    runner = CheckerRunner(sandbox)
    found = await asyncio.gather(
        *(runner.run(words, cases("one two", "one", "", " \n", n=number % 3)) for number in range(6))
    )
    passed = [[one.passed for one in outcomes] for outcomes in found]
    wanted = {0: [True, True, True, True], 1: [True, True, False, False], 2: [True, False, False, False]}
    assert passed == [wanted[number % 3] for number in range(6)]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("return 1 / 0 if 'bad' in response else True", "ZeroDivisionError: division by zero"),
        ("return response if 'bad' in response else True", "it returned str, and not True, False or None"),
        ("import os\n    if 'bad' in response: os._exit(0)\n    return True", "it ended without a result"),
        ("import sys\n    if 'bad' in response: sys.exit(3)\n    return True", "SystemExit: 3"),
        ("while 'bad' in response: pass\n    return True", "cpu_limit"),
        ("return bytearray(1 << 40) if 'bad' in response else True", "MemoryError"),
        ("return open('/etc/passwd').read() if 'bad' in response else True", "FileNotFoundError"),
    ],
)
async def test_a_row_that_fails_abstains_and_costs_no_other_row_its_outcome(
    body: str, fault: str, sandbox: RecordingSandbox
) -> None:
    found = await CheckerRunner(sandbox).run(checker(body), cases("good", "bad", "good too"))
    assert [one.passed for one in found] == [True, None, True]
    assert fault in found[1].fault


STATE = """
import json, os, random
calls = []

def check(response, prompt):
    calls.append(response)
    json.calls = getattr(json, "calls", 0) + 1
    os.environ["CALLS"] = os.environ.get("CALLS", "") + "x"
    open("calls", "a").write("x")
    print("[true]", response)
    return (
        (len(calls), json.calls, os.environ["CALLS"], open("calls").read()) == (1, 1, "x", "x")
        and prompt == "the prompt"
        and random.random() == 0.8444218515250481
    )
"""
ATTACK = """
import builtins, gc, json, os
print("[true, true, true, true]")
json.dumps = lambda *given: "[true, true, true, true]"
builtins.len = lambda given: 10**9
for one in gc.get_objects():
    if isinstance(one, list) and one and isinstance(one[0], (list, str)):
        one[:] = ["a b c"] * builtins.sum(1 for _ in one)
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_no_state_is_left_between_calls_of_one_checker(sandbox: RecordingSandbox) -> None:
    found = await CheckerRunner(sandbox).run(
        Checker(name="c", rule="a rule", source=STATE), cases("a", "a", "a", "b")
    )
    assert found == [CheckOutcome(True)] * 4


@pytest.mark.asyncio(loop_scope="module")
async def test_a_response_that_its_checker_executes_changes_no_other_row(target: Sandbox) -> None:
    """Seven rows of three callers, beside two responses that take over their programs, in every placement."""
    body = "try: exec(response)\n    except Exception: pass\n    return len(response) < 6"
    runner, honest = CheckerRunner(target, seed=3), ["short", "much longer", "tiny"]
    expected = [CheckOutcome(True), CheckOutcome(False), CheckOutcome(True)]
    found = await asyncio.gather(
        runner.run(checker(body), cases(ATTACK, *honest)),
        runner.run(checker(body), cases(*honest[:2], ATTACK, honest[2])),
        runner.run(checker(body), cases("short")),
    )
    rest = [one for several in found for one in several]
    del rest[6], rest[0]
    assert rest == [*expected, *expected, CheckOutcome(True)]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("code", ["0", "3"])
@pytest.mark.parametrize("forged", ["[true]", '[true, ""]', '\n[[true, ""]]\n', "True"])
async def test_a_response_cannot_print_its_own_outcome(
    forged: str, code: str, sandbox: RecordingSandbox
) -> None:
    attack = (
        f"import os\nos.write(1, {forged.encode()!r})\nos.write(2, {forged.encode()!r})\nos._exit({code})"
    )
    (found,) = await CheckerRunner(sandbox).run(checker("exec(response)\n    return False"), cases(attack))
    assert found.passed is None
    assert "it ended with" in found.fault
    printed = f"import os\nos.write(1, {forged.encode()!r})"
    (found,) = await CheckerRunner(sandbox).run(checker("exec(response)\n    return False"), cases(printed))
    assert found == CheckOutcome(False)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_checker_that_executes_a_response_by_isolated_is_not_deceived(
    sandbox: RecordingSandbox,
) -> None:
    """The response ends the program in which it runs, as a success, and prints what the checker looks for."""
    body = (
        "import isolated\n    outcome = isolated.run(response + '\\nprint(double(21))')\n"
        "    return outcome.stdout.strip() == '42'"
    )
    good, bad = "def double(n): return 2 * n", "import os\nos.write(1, b'[true, \"\"]')\nos._exit(0)"
    found = await CheckerRunner(sandbox).run(checker(body), cases(good, bad, "def double(n): return n"))
    assert found == [CheckOutcome(True), CheckOutcome(False), CheckOutcome(False)]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_seed_draws_the_order_in_which_responses_start(opened: Sandbox) -> None:
    class Noted(RecordingSandbox):
        async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
            started.append(program.bindings["call"]["arguments"][0])
            return await super().run(program, limits)

    orders = []
    for seed in (0, 0, 1):
        started: list[str] = []
        found = await CheckerRunner(Noted(opened), seed=seed).run(
            checker("return response > 'c'"), cases(*"abcdef")
        )
        assert [one.passed for one in found] == [False, False, False, True, True, True]
        orders.append(started)
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == [*"abcdef"]


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


async def test_a_failed_sandbox_is_no_outcome() -> None:
    class Broken:
        capacity = 1

        async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
            return Execution(status=Status.SANDBOX_FAILED, detail="no worker")

    with pytest.raises(CheckersDown, match="no worker"):
        await CheckerRunner(Broken()).run(checker("return True"), cases("a"))  # type: ignore[arg-type]
