"""CodeRM: programs sorted by the unit tests that come with them (TIR Table 6, "CodeRM")."""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator

from tirjudge_environments import Message
from tirjudge_sandbox import Limits, Program, Sandbox, Status
from tirjudge_training.corpora.base import Sampler, Skipped, Source, SourceCard, SourceItem

TESTS = 3
"""The number of unit tests, each a whole test case class, that a program must pass (ours)."""
PASSED = "every test passed"
"""Printed at the end, so that a program that exits early with status 0 does not count as right."""
RUNNER = f"""
import io, unittest
space = {{"__name__": "solution"}}
exec(solution, space)
run = 0
for test in tests:
    module = dict(space)
    exec(test, module)
    classes = [one for one in module.values() if isinstance(one, type)]
    cases = [one for one in classes if issubclass(one, unittest.TestCase)]
    suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases))
    result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    assert result.wasSuccessful()
    run += result.testsRun
assert run
print({PASSED!r})
"""


def _parsed(value: Any) -> Any:
    """Parse a list that the column may store as JSON or as a Python literal."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError("neither a list nor a string with one") from None


class Code(BaseModel):
    """A program or a unit test."""

    code: str


class CodeRmRow(BaseModel):
    """A row of CodeRM-UnitTest: a problem, its solutions and its unit tests."""

    question: str
    code_ground_truth: str
    code_generate: Annotated[list[Code], BeforeValidator(_parsed)]
    unit_tests: Annotated[list[Code], BeforeValidator(_parsed)]


class CodeRm(Source[CodeRmRow]):
    """Takes the reference and a small model's solutions; the sandbox decides, not the dataset's verdicts."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="KAKA22/CodeRM-UnitTest",
        parts=((None, "train"),),
        domain="code",
        about=f"solutions that pass {TESTS} unit tests and solutions that fail one, run in the sandbox",
        licence="Apache-2.0",
        needs=frozenset({"sandbox"}),
    )
    row = CodeRmRow

    def question(self, row: CodeRmRow) -> SourceItem | Skipped:
        programs = (row.code_ground_truth, *(one.code for one in row.code_generate))
        return SourceItem(
            prompt=(Message("user", row.question),),
            known={"programs": programs, "tests": tuple(one.code for one in row.unit_tests[:TESTS])},
        )

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        programs, tests = question.known["programs"], question.known["tests"]
        passed = await asyncio.gather(*(_passes(program, tests, sandbox) for program in programs))
        if None in passed:
            return Skipped("the sandbox failed")
        # The tests decide who is right, so tests that fail the reference decide nothing.
        if not passed[0]:
            return Skipped("the reference solution fails its own tests")
        sorted_out = list(zip(programs, passed, strict=True))
        good = [program for program, right in sorted_out if right]
        bad = [program for program, right in sorted_out if not right and program.strip()]
        return question.answered(good, bad) if bad else Skipped("no solution that fails a test")


async def _passes(program: str, tests: Sequence[str], sandbox: Sandbox) -> bool | None:
    """Run the tests on a program; None if the sandbox failed, which says nothing about the program."""
    done = await sandbox.run(
        Program(source=RUNNER, bindings={"solution": program, "tests": list(tests)}), Limits()
    )
    if done.status is Status.SANDBOX_FAILED:
        return None
    return done.status is Status.OK and done.stdout.rstrip().endswith(PASSED)
