"""HelpSteer3: human preferences between two responses (TIR Table 6, "HelpSteer3")."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, Field

from tirjudge_training.corpora.base import ChatTurn, Skipped, Source, SourceCard, SourceItem

CLEAR = 2
"""The smallest |overall_preference| that is taken, "better"; 1 is "slightly better" (TIR App. C)."""


class HelpSteer3Row(BaseModel):
    """A row of HelpSteer3's preferences."""

    context: list[ChatTurn]
    response1: str
    response2: str
    overall_preference: int = Field(ge=-3, le=3)
    """Negative if the first response is better."""


class HelpSteer3(Source[HelpSteer3Row]):
    """Takes pairs in which one response is better or significantly better."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="nvidia/HelpSteer3",
        parts=(("preference", "train"),),
        domain="helpfulness",
        about="human preferences, |overall_preference| >= 2",
        licence="CC-BY-4.0",
    )
    row = HelpSteer3Row

    def question(self, row: HelpSteer3Row) -> SourceItem | Skipped:
        if abs(row.overall_preference) < CLEAR:
            return Skipped("neither response is better or significantly better")
        responses = (row.response1, row.response2)
        first = row.overall_preference < 0
        return SourceItem(
            prompt=tuple(turn.message for turn in row.context),
            good=responses[:1] if first else responses[1:],
            bad=responses[1:] if first else responses[:1],
        )
