"""Code-Preference-Pairs: code and the same code with injected bugs (RM-R1, App. D.2 and Table 5)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Question, Skipped, Source, SourceCard


class CodePreferenceRow(BaseModel):
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

    def question(self, row: CodePreferenceRow) -> Question | Skipped:
        return Question(prompt=(Message("user", row.input),), good=(row.accepted,), bad=(row.rejected,))
