"""UltraInteract: right and wrong actions in trees of trajectories (TIR Table 6, "UltraInteract", code)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, Source, SourceCard, SourceItem

CODE = "Coding"


class Turn(BaseModel):
    """One turn of a trajectory."""

    role: Literal["user", "assistant"] = Field(alias="from")
    value: str


class UltraInteractRow(BaseModel):
    """A row of UltraInteract: a trajectory and two next actions."""

    task: str
    trajectory: list[Turn]
    chosen: str
    rejected: str


class UltraInteract(Source[UltraInteractRow]):
    """Takes the coding tasks alone, since Table 6 gives this source's domain as code."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="openbmb/UltraInteract_pair",
        parts=((None, "train"),),
        domain="code",
        about="pairs of a right and a wrong next action, task Coding",
        licence="MIT",
    )
    row = UltraInteractRow

    def question(self, row: UltraInteractRow) -> SourceItem | Skipped:
        if row.task != CODE:
            return Skipped(f"a task other than {CODE}")
        return SourceItem(
            prompt=tuple(Message(turn.role, turn.value) for turn in row.trajectory),
            good=(row.chosen,),
            bad=(row.rejected,),
        )
