"""s1K-1.1: hard problems with two models' graded attempts (TIR Table 6, "s1")."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_sandbox import Sandbox
from tirjudge_training.corpora.base import Sampler, Skipped, SourceCard, SourceItem
from tirjudge_training.corpora.final_answers import Solved, last_boxed

Grade = Literal["Yes", "No"]


class S1Row(BaseModel):
    """A row of s1K-1.1: a problem with the graded attempts of two models."""

    question: str
    solution: str
    gemini_attempt: str
    gemini_grade: Grade
    deepseek_attempt: str
    deepseek_grade: Grade


class S1(Solved[S1Row]):
    """Pairs a right attempt with a wrong one; adds sampled answers if both have the same grade (ours)."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="simplescaling/s1K-1.1",
        parts=((None, "train"),),
        domain="math",
        about="attempts by their grade, completed with sampled answers sorted by math-verify",
        licence="MIT",
        needs=frozenset({"generators"}),
    )
    row = S1Row

    def question(self, row: S1Row) -> SourceItem | Skipped:
        graded = (
            (row.gemini_attempt, row.gemini_grade),
            (row.deepseek_attempt, row.deepseek_grade),
        )
        return SourceItem(
            prompt=(Message("user", row.question),),
            good=tuple(attempt for attempt, grade in graded if grade == "Yes"),
            bad=tuple(attempt for attempt, grade in graded if grade == "No"),
            known={"gold": last_boxed(row.solution) or row.solution},
        )

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        if question.good and question.bad:
            return question
        return await super().fill(question, sampler, sandbox)
