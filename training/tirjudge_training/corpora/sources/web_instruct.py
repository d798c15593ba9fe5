"""WebInstruct-verified: questions of all subjects, with sampled answers (TIR Table 6, "WebInstruct")."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, SourceCard, SourceItem
from tirjudge_training.corpora.final_answers import Solved

CHECKABLE = frozenset(
    {"Expression", "Float", "Fraction", "Integer", "Matrix", "Multiple Choice", "Percentage"}
)
"""The answer types that math-verify can compare; others, such as texts and lists, are left out (ours)."""


class WebInstructRow(BaseModel):
    """A row of WebInstruct-verified."""

    question: str
    answer: str
    answer_type: str


class WebInstruct(Solved[WebInstructRow]):
    """Takes questions whose answers can be compared by a rule."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="TIGER-Lab/WebInstruct-verified",
        parts=((None, "train"),),
        domain="reasoning",
        about="sampled answers, sorted by math-verify, for answer types that it can compare",
        licence="Apache-2.0",
        needs=frozenset({"generators"}),
    )
    row = WebInstructRow

    def question(self, row: WebInstructRow) -> SourceItem | Skipped:
        if row.answer_type not in CHECKABLE:
            return Skipped("an answer type that math-verify cannot compare")
        return SourceItem(prompt=(Message("user", row.question),), known={"gold": row.answer})
