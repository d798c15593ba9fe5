"""Grades of code: a candidate's program runs its question's unit tests in the sandbox."""

from __future__ import annotations

import asyncio
import secrets

from tirjudge.best_of_n.base import CandidateSet, Grade, RefereeUnavailable, same_answers
from tirjudge_environments.parsing import find_fences
from tirjudge_sandbox import Limits, Program, Sandbox, Status

LIMITS = Limits(cpu_seconds=60, wall_seconds=120, memory_bytes=1 << 30)
_PYTHON = ("python", "python3", "py", "")
_PASSED = "tirjudge-passed.txt"

_RUN_TEST_CASES = """
import unittest as _unittest
_cases = [one for one in list(globals().values())
          if isinstance(one, type) and issubclass(one, _unittest.TestCase)]
_suite = _unittest.TestSuite(map(_unittest.defaultTestLoader.loadTestsFromTestCase, _cases))
if not _suite.countTestCases() or not _unittest.TextTestRunner().run(_suite).wasSuccessful():
    raise SystemExit(1)
"""


class UnitTests:
    """A candidate solves a question if its program passes `gold["tests"]`; equal programs are one answer.

    Tests are Python: bare assertions, unittest cases (BigCodeBench), or a function `check` that takes what
    `gold["entry_point"]` names (HumanEval). A program that exits before its tests are done has not passed.
    Tests and program share a process, so a program that is written to deceive its tests can do so.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits = LIMITS) -> None:
        self._sandbox, self._limits = sandbox, limits

    async def grade(self, question: CandidateSet) -> Grade:
        programs = [code_of(text) for text in question.task.candidates]
        solved = await asyncio.gather(*(self._passes(program, question) for program in programs))
        return Grade(tuple(map(float, solved)), same_answers(map(_bare, programs)))

    async def _passes(self, program: str, question: CandidateSet) -> bool:
        """Run the tests on a program. Raises RefereeUnavailable if the sandbox failed."""
        gold = question.task.gold
        tests = _complete(gold["tests"], gold.get("entry_point", ""))
        # A random word that is written last proves that the tests ran to their end.
        word = secrets.token_hex(16)
        source = f"{program}\n\n{tests}\n\nopen({_PASSED!r}, 'w').write({word!r})\n"
        execution = await self._sandbox.run(Program(source=source, fetch=(_PASSED,)), self._limits)
        if execution.status is Status.SANDBOX_FAILED:
            raise RefereeUnavailable(execution.detail, passing=True)
        return execution.status is Status.OK and execution.files.get(_PASSED) == word.encode()


def code_of(response: str) -> str:
    """Return the longest fence of Python or without a language; otherwise the whole response."""
    fences = [fence for fence in find_fences(response) if fence.info.lower() in _PYTHON]
    bodies = [response[fence.body_start : fence.body_end] for fence in fences]
    return max(bodies, key=len, default=response)


def _complete(tests: str, entry_point: str) -> str:
    """Return the tests with the lines that run them."""
    if "TestCase" in tests:
        return tests + _RUN_TEST_CASES
    if entry_point and "def check(" in tests:
        return f"{tests}\ncheck({entry_point})\n"
    return tests


def _bare(program: str) -> tuple[str, ...]:
    """Return the non-empty lines without trailing white space."""
    return tuple(line.rstrip() for line in program.splitlines() if line.strip())
