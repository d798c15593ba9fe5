"""Code-Preference-Pairs: code and the same code with injected bugs (RM-R1, App. D.2 and Table 5)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, Source, SourceCard, SourceItem


class CodePreferenceRow(BaseModel):
    """A row of Code-Preference-Pairs."""

    input: str
    accepted: str
    rejected: str


class CodePreferencePairs(Source[CodePreferenceRow]):
    """Takes every row as a pair."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="Vezora/Code-Preference-Pairs",
        parts=((None, "train"),),
        domain="reasoning",
        about="correct code, and the same with bugs",
        licence="",
    )
    row = CodePreferenceRow

    def question(self, row: CodePreferenceRow) -> SourceItem | Skipped:
        return SourceItem(prompt=(Message("user", row.input),), good=(row.accepted,), bad=(row.rejected,))
