"""Grades of candidates by the check that each question names, kept on disk: no test suite runs twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tirjudge.best_of_n.base import CandidateSet, Check, Grade, same_texts
from tirjudge.best_of_n.mathematics import PRELOAD, Mathematics
from tirjudge.best_of_n.unit_tests import UnitTests
from tirjudge.storage.run_folder import JsonLines, read_lines
from tirjudge_environments.instruction_checks.registry import followed, verifiers_of
from tirjudge_sandbox import open_sandbox

UNGRADED = "none"
"""The check of a question about which nothing is known: its candidates are selected, not graded."""


class Recorded:
    """Grades that the row itself contains: `solved`, the scores of JETTS rows, or a label.

    Candidates with the same text give the same answer.
    """

    async def grade(self, question: CandidateSet) -> Grade:
        return Grade(tuple(question.task.gold["solved"]), same_texts(question.task.candidates))


class Instructions:
    """IFEval's prompt-level strict accuracy: a candidate solves the question if it follows every instruction.

    Candidates with the same text give the same answer.
    """

    async def grade(self, question: CandidateSet) -> Grade:
        verifiers = verifiers_of(question.task.gold["instructions"])
        candidates = question.task.candidates
        solved = tuple(float(all(followed(verifiers, text).strict)) for text in candidates)
        return Grade(solved, same_texts(candidates))


class Grades:
    """A file of grades that adds what it lacks; an async context manager.

    Its sandbox is opened for the first question that needs one. Entering raises Locked and OSError.
    """

    def __init__(self, path: Path, *, allow_weak_isolation: bool = False) -> None:
        self._path, self._allow_weak_isolation = path, allow_weak_isolation
        self._checks: dict[str, Check] = {
            "instructions": Instructions(),
            "label": Recorded(),
            "recorded": Recorded(),
        }
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._lines = self._stack.enter_context(JsonLines(self._path))
        self._kept = {row["key"]: _read(row) for row in read_lines(self._path)}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def grade(self, question: CandidateSet) -> Grade:
        """Return the grade of a question, from the file if it is there.

        Raises ValueError for a question that cannot be graded, RefereeUnavailable if the sandbox failed, and
        SandboxUnavailable if there can be none.
        """
        if question.task.gold["check"] == UNGRADED:
            return Grade(None, same_texts(question.task.candidates))
        key = _key(question)
        if key not in self._kept:
            check = await self._check(question.task.gold["check"])
            grade = await check.grade(question)
            self._lines.append(
                {"key": key, "id": question.task.id, "solved": grade.solved, "answers": grade.answers}
            )
            self._kept[key] = grade
        return self._kept[key]

    async def _check(self, name: str) -> Check:
        async with self._opening:
            if name not in self._checks:
                sandbox = await self._stack.enter_async_context(
                    open_sandbox("local", preload=PRELOAD, allow_weak_isolation=self._allow_weak_isolation)
                )
                self._checks |= {"math": Mathematics(sandbox), "tests": UnitTests(sandbox)}
        return self._checks[name]


def _key(question: CandidateSet) -> str:
    """Hash everything that a grade depends on, so that an edited row is graded again."""
    text = json.dumps([question.task.id, question.task.candidates, dict(question.task.gold)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read(row: dict[str, Any]) -> Grade:
    return Grade(tuple(row["solved"]), tuple(row["answers"]))
