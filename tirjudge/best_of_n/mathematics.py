"""Grades of mathematics: final answers compared with the gold answer by math-verify, in the sandbox."""

from __future__ import annotations

import inspect
import json
from typing import Any

from tirjudge.best_of_n.base import CandidateSet, Grade, RefereeUnavailable
from tirjudge_sandbox import Execution, Limits, Program, Sandbox, Status

PRELOAD = ("numpy", "sympy", "math_verify")
"""Modules that the sandbox should preload: importing math-verify takes a second."""
LIMITS = Limits(cpu_seconds=120, wall_seconds=300)
_MISSING = "ModuleNotFoundError: No module named 'math_verify'"


class Mathematics:
    """Compares the last boxed expression, otherwise the last number, of a candidate with `gold["answer"]`.

    Answers with equal values are the same answer, such as 1/2 and 0.5. A candidate whose answer cannot be
    read, or not be compared with the gold answer, within the limits has none.
    """

    def __init__(self, sandbox: Sandbox, limits: Limits = LIMITS) -> None:
        self._sandbox, self._limits = sandbox, limits

    async def grade(self, question: CandidateSet) -> Grade:
        candidates = question.task.candidates
        everyone = tuple(range(len(candidates)))
        execution = await self._run(question, everyone)
        if execution.status is Status.OK:
            return _grade(execution, everyone, len(candidates))
        # Some expression did not end: find out which, first the gold answer, then candidate by candidate.
        execution = await self._run(question, ())
        if execution.status is not Status.OK:
            raise ValueError(f"math-verify cannot compare with the answer: {_last_line(execution)}")
        readable = tuple([index for index in everyone if await self._has_answer(question, index)])
        execution = await self._run(question, readable)
        if execution.status is not Status.OK:
            raise ValueError(f"math-verify cannot compare the candidates' answers: {_last_line(execution)}")
        return _grade(execution, readable, len(candidates))

    async def _has_answer(self, question: CandidateSet, candidate: int) -> bool:
        """Return True if a candidate alone has an answer that can be read and compared within the limits."""
        execution = await self._run(question, (candidate,))
        return execution.status is Status.OK and json.loads(execution.stdout)["answers"] != [None]

    async def _run(self, question: CandidateSet, candidates: tuple[int, ...]) -> Execution:
        """Compare these candidates in the sandbox. Raises RefereeUnavailable if the sandbox failed."""
        bound = {
            "gold": question.task.gold["answer"],
            "responses": [question.task.candidates[index] for index in candidates],
        }
        source = (
            f"from __future__ import annotations\n\n{inspect.getsource(show_grades)}\n"
            "show_grades(gold, responses)\n"
        )
        execution = await self._sandbox.run(Program(source=source, bindings=bound), self._limits)
        if execution.status is Status.SANDBOX_FAILED:
            raise RefereeUnavailable(execution.detail, passing=True)
        if _MISSING in execution.stderr:
            raise ValueError("comparing final answers needs the extra `eval`: pip install 'tirjudge[eval]'")
        return execution


def show_grades(gold: str, responses: list[str]) -> None:
    """Print as JSON if the gold answer can be read, who is right, and who gives the same answer.

    The source of this function runs in the sandbox, because answers are hostile text: one may be an
    expression that never ends. It must not refer to anything outside of its body.
    """
    import json
    import logging
    import time

    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    logging.disable(logging.CRITICAL)
    configs = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
    seconds = 5  # for reading one answer, and for comparing two

    def read(text: str) -> list[Any]:
        found: list[Any] = parse(text, configs, parsing_timeout=seconds)
        return found

    def same(first: list[Any], second: list[Any]) -> bool:
        return bool(verify(first, second, timeout_seconds=seconds))

    right = read("\\boxed{" + gold + "}")
    found = [read(text) for text in responses]
    solved: list[bool] = []
    for place, one in enumerate(found):
        started = time.monotonic()
        solved.append(bool(one) and same(right, one))
        if time.monotonic() - started >= seconds:
            found[place] = []  # otherwise it would take as long again beside every other candidate
    answers: list[int | None] = []
    for place, one in enumerate(found):
        alike = (first for first in range(place) if answers[first] == first and same(found[first], one))
        answers.append(next(alike, place) if one else None)
    print(json.dumps({"gold": bool(right), "solved": solved, "answers": answers}))


def _grade(execution: Execution, candidates: tuple[int, ...], count: int) -> Grade:
    """Read the printed grades. Raises ValueError for a gold answer that cannot be read."""
    shown: dict[str, Any] = json.loads(execution.stdout)
    if not shown["gold"]:
        raise ValueError("math-verify cannot read its answer")
    solved = [0.0] * count
    answers: list[int | None] = [None] * count
    for index, right, answer in zip(candidates, shown["solved"], shown["answers"], strict=True):
        solved[index] = float(right)
        answers[index] = None if answer is None else candidates[answer]
    return Grade(tuple(solved), tuple(answers))


def _last_line(execution: Execution) -> str:
    lines = execution.stderr.strip().splitlines()
    return lines[-1] if lines else execution.status.value
