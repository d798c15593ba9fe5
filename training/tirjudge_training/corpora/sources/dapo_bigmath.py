"""DAPO-Math, with sampled answers (TIR Table 6, "dapo_bigmath")."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, SourceCard, SourceItem
from tirjudge_training.corpora.final_answers import Solved


class DapoRow(BaseModel):
    """A row of DAPO-Math-17k."""

    prompt: str
    solution: str
    """The final answer alone."""


class DapoBigmath(Solved[DapoRow]):
    """Takes the English problems.

    The name in Table 6 may include Big-Math, which section 4.1 does not mention.
    """

    card: ClassVar[SourceCard] = SourceCard(
        dataset="open-r1/DAPO-Math-17k-Processed",
        parts=(("en", "train"),),
        domain="math",
        about="sampled answers, sorted by math-verify",
        licence="Apache-2.0",
        needs=frozenset({"generators"}),
    )
    row = DapoRow

    def question(self, row: DapoRow) -> SourceItem | Skipped:
        return SourceItem(prompt=(Message("user", row.prompt),), known={"gold": row.solution})
