"""Grades that are kept: a test suite that ran need not run again."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tirjudge.best_of_n.base import Check, Grade, Question
from tirjudge.best_of_n.checks.instructions import Instructions
from tirjudge.best_of_n.checks.mathematics import PRELOAD, Mathematics
from tirjudge.best_of_n.checks.recorded import Recorded
from tirjudge.best_of_n.checks.unit_tests import UnitTests
from tirjudge.storage.run_folder import JsonLines, read_lines
from tirjudge_sandbox import open_sandbox


class Grades:
    """Grades questions by the check that each names, once; an async context manager.

    Its sandbox is opened for the first question that needs one. Raises Locked and OSError for the file.
    """

    def __init__(self, path: Path, *, allow_weak_isolation: bool = False) -> None:
        self._path, self._allow_weak_isolation = path, allow_weak_isolation
        self._checks: dict[str, Check] = {"instructions": Instructions(), "recorded": Recorded()}
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

    async def grade(self, question: Question) -> Grade:
        """Raises ValueError for a question that cannot be graded, RefereeDown where the sandbox failed,
        SandboxUnavailable where there can be none."""
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


def _key(question: Question) -> str:
    """What was graded, by what: an edited row is graded anew."""
    text = json.dumps([question.task.id, question.task.candidates, dict(question.task.gold)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _read(row: dict[str, Any]) -> Grade:
    return Grade(tuple(row["solved"]), tuple(row["answers"]))
