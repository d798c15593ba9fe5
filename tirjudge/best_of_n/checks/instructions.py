"""Grades by IFEval's verifiers: solved is who follows every instruction, strictly."""

from __future__ import annotations

from tirjudge.best_of_n.base import Grade, Question
from tirjudge.best_of_n.checks.alike import by_text
from tirjudge_environments.instruction_checks import followed, verifiers_of


class Instructions:
    """IFEval's prompt-level strict accuracy. Two candidates are one answer if they are the same text."""

    async def grade(self, question: Question) -> Grade:
        verifiers = verifiers_of(question.task.gold["instructions"])
        candidates = question.task.candidates
        solved = tuple(float(all(followed(verifiers, text).strict)) for text in candidates)
        return Grade(solved, by_text(candidates))
