"""MATH: training problems, with sampled answers (TIR Table 6, "MATH")."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, SourceCard, SourceItem
from tirjudge_training.corpora.final_answers import Solved, last_boxed


class MathRow(BaseModel):
    """A row of MATH."""

    problem: str
    solution: str


class Math(Solved[MathRow]):
    """Takes answers as right if they end in the boxed result of the reference solution."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="DigitalLearningGmbH/MATH-lighteval",
        parts=(("default", "train"),),
        domain="math",
        about="sampled answers, sorted by math-verify against the boxed result of the solution",
        licence="MIT",
        needs=frozenset({"generators"}),
    )
    row = MathRow

    def question(self, row: MathRow) -> SourceItem | Skipped:
        gold = last_boxed(row.solution)
        if gold is None:
            return Skipped("a solution without a boxed answer")
        return SourceItem(prompt=(Message("user", row.problem),), known={"gold": gold})
