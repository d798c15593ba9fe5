"""Skywork-Reward-Preference-80K without `magpie_ultra` (RM-R1, App. D.2 and Table 5)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_training.corpora.base import ChatTurn, Skipped, Source, SourceCard, SourceItem

GIVEN_AWAY = "magpie_ultra"
"""Left out: only its rejected responses contain a stray chat marker, which would give the label away."""
DOMAINS = {"magpie": "reasoning", "offset": "chat", "helpsteer": "chat", "wildguard": "safety"}
"""The domains of RM-R1's Table 5, by the prefix of a row's `source`."""


class SkyworkRow(BaseModel):
    """A row of Skywork-Reward-Preference: two conversations."""

    source: str
    chosen: list[ChatTurn]
    rejected: list[ChatTurn]


class Skywork(Source[SkyworkRow]):
    """Takes conversations that differ in the last turn alone, since a pair has one prompt."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="Skywork/Skywork-Reward-Preference-80K-v0.2",
        parts=((None, "train"),),
        domain="chat",
        about="all preference pairs except those of magpie_ultra",
        licence="",
        repeats=True,
    )
    row = SkyworkRow

    def question(self, row: SkyworkRow) -> SourceItem | Skipped:
        if row.source == GIVEN_AWAY:
            return Skipped(f"of {GIVEN_AWAY}")
        # A pair has one prompt, so only the last turn may differ.
        if len(row.chosen) < 2 or row.chosen[:-1] != row.rejected[:-1]:
            return Skipped("conversations that differ before their last turn")
        if {row.chosen[-1].role, row.rejected[-1].role} != {"assistant"}:
            return Skipped("a conversation that does not end with an answer")
        found = (domain for name, domain in DOMAINS.items() if row.source.startswith(name))
        return SourceItem(
            prompt=tuple(turn.message for turn in row.chosen[:-1]),
            good=(row.chosen[-1].content,),
            bad=(row.rejected[-1].content,),
            domain=next(found, ""),
        )
