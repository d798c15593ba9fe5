"""Math-Step-DPO-10K: right and wrong continuations of the same first steps (RM-R1, App. D.2)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, Source, SourceCard, SourceItem


class MathStepRow(BaseModel):
    """A row of Math-Step-DPO-10K."""

    prompt: str
    initial_reason_steps: str
    full_chosen: str
    full_rejected: str


class MathStepDpo(Source[MathStepRow]):
    """Joins the common first steps with each continuation, as the authors' code does."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="xinlai/Math-Step-DPO-10K",
        parts=((None, "train"),),
        domain="reasoning",
        about="the common first steps with the right and with the wrong continuation",
        licence="",
        repeats=True,
    )
    row = MathStepRow

    def question(self, row: MathStepRow) -> SourceItem | Skipped:
        return SourceItem(
            prompt=(Message("user", row.prompt),),
            good=(row.initial_reason_steps + row.full_chosen,),
            bad=(row.initial_reason_steps + row.full_rejected,),
        )
