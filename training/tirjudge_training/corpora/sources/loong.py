"""Loong: seed problems of all domains, with sampled answers (TIR Table 6, "Loong")."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, SourceCard, SourceItem
from tirjudge_training.corpora.final_answers import Solved
from tirjudge_training.corpora.hub import EVERY


class LoongRow(BaseModel):
    """A row of Loong."""

    question: str
    final_answer: str


class Loong(Solved[LoongRow]):
    """Takes every configuration, one per domain; math-verify drops problems whose answer is a text."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="camel-ai/loong",
        parts=((EVERY, "train"),),
        domain="reasoning",
        about="sampled answers, sorted by math-verify",
        licence="MIT",
        needs=frozenset({"generators"}),
    )
    row = LoongRow

    def question(self, row: LoongRow) -> SourceItem | Skipped:
        return SourceItem(prompt=(Message("user", row.question),), known={"gold": row.final_answer})
