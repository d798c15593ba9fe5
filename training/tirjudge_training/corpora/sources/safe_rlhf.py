"""PKU-SafeRLHF: pairs of a safe and an unsafe answer (TIR Table 6, "SafeRLHF")."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, Source, SourceCard, SourceItem


class SafeRlhfRow(BaseModel):
    """A row of PKU-SafeRLHF."""

    prompt: str
    response_0: str
    response_1: str
    is_response_0_safe: bool
    is_response_1_safe: bool
    safer_response_id: Literal[0, 1]


class SafeRlhf(Source[SafeRlhfRow]):
    """Takes pairs in which exactly one response is safe and is also rated the safer one (ours)."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="PKU-Alignment/PKU-SafeRLHF",
        parts=((None, "train"),),
        domain="safety",
        about="pairs of a safe and an unsafe response",
        licence="CC-BY-NC-4.0",
    )
    row = SafeRlhfRow

    def question(self, row: SafeRlhfRow) -> SourceItem | Skipped:
        responses = (row.response_0, row.response_1)
        safe = (row.is_response_0_safe, row.is_response_1_safe)
        if safe[0] == safe[1]:
            return Skipped("both responses are safe, or neither")
        # Two annotations that contradict each other.
        if not safe[row.safer_response_id]:
            return Skipped("the safer response is not the safe one")
        return SourceItem(
            prompt=(Message("user", row.prompt),),
            good=(responses[safe.index(True)],),
            bad=(responses[safe.index(False)],),
        )
