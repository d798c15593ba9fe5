"""JudgeLM-100K: pairs with GPT-4's scores, the targets of JudgeLRM's reward (JudgeLRM, section 4.1)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from tirjudge_environments import Message
from tirjudge_training.corpora.base import Skipped, Source, SourceCard, SourceItem


class JudgeLmRow(BaseModel):
    """A row of JudgeLM-100K, with GPT-4's scores of both answers."""

    question_body: str
    answer1_body: str
    answer2_body: str
    score: list[float]


class JudgeLm(Source[JudgeLmRow]):
    """Takes both answers in the order that GPT-4 saw, ties included."""

    card: ClassVar[SourceCard] = SourceCard(
        dataset="BAAI/JudgeLM-100K",
        parts=((None, "train"),),
        files="judgelm_train_100k.jsonl",
        domain="general",
        about="pairs with GPT-4's two scores; rows where it gave none (-1) are left out",
        licence="CC-BY-NC-4.0",
        repeats=True,
    )
    row = JudgeLmRow

    def question(self, row: JudgeLmRow) -> SourceItem | Skipped:
        # A score of -1 marks a row for which GPT-4 gave none.
        if len(row.score) != 2 or min(row.score) < 0:
            return Skipped("no two scores")
        if not row.question_body.strip():
            return Skipped("an empty question")
        return SourceItem(
            prompt=(Message("user", row.question_body.strip()),),
            row={"responses": [row.answer1_body, row.answer2_body], "gold_scores": row.score},
        )
