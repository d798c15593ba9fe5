"""Rows composed from questions: one good answer with one or several bad ones, until every format is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tirjudge_environments import derive_seed
from tirjudge_environments.orders import letter
from tirjudge_training.corpora.base import KINDS, Kind, SourceItem

FEWEST, MOST = 3, 5
"""The number of wrong answers in a list (TIR App. C)."""
SINGLES: tuple[Kind, ...] = ("pointwise", "pairwise")
Row = dict[str, Any]


@dataclass
class Composer:
    """Assigns each question to one format.

    The paper does not specify the assignment. This one makes lists of the first questions that have enough
    wrong answers, and fills the other formats evenly.
    """

    source: str
    domain: str
    wanted: Mapping[Kind, int | None]
    """Rows by format; None means all."""
    judges: Mapping[Kind, str]
    """The judge that a format's rows name; a format without one leaves it open."""
    seed: int
    repeats: bool = False
    """Allow several questions with the same prompt."""
    made: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def full(self) -> bool:
        """True if no format needs another row."""
        return not any(self._open(kind) for kind in KINDS)

    def row(self, question: SourceItem) -> Row | None:
        """Return the question as a row of its format; None if no format that it fits needs another row."""
        kind = self._kind(question)
        if kind is None:
            return None
        self.made[kind] += 1
        row: Row = {
            "id": f"{self.source}/{self._key(question)}",
            "source": self.source,
            "format": kind,
            "environment": self.judges.get(kind),
            "domain": question.domain or self.domain,
            "prompt": [{"role": m.role, "content": m.content} for m in question.prompt],
            "tags": [f"row={question.origin}"],
        }
        return row | (self._answers(question, kind) if question.row is None else dict(question.row))

    def _key(self, question: SourceItem) -> str:
        return question.whole_key if self.repeats else question.key

    def _kind(self, question: SourceItem) -> Kind | None:
        if question.row is not None:
            return "pairwise" if self._open("pairwise") else None
        if not question.good or not question.bad:
            return None
        if self._open("listwise") and len(question.bad) >= FEWEST:
            return "listwise"
        # The format with the smallest share of its rows: both fill up evenly.
        return min((kind for kind in SINGLES if self._open(kind)), key=self._share, default=None)

    def _open(self, kind: Kind) -> bool:
        wanted = self.wanted.get(kind, 0)
        return wanted is None or self.made[kind] < wanted

    def _share(self, kind: Kind) -> float:
        return self.made[kind] / (self.wanted.get(kind) or 1)

    def _answers(self, question: SourceItem, kind: Kind) -> Row:
        # The place of the good answer is random, so that a judge cannot learn it from the position.
        rng = Random(derive_seed("row", self.seed, self.source, self._key(question)))
        # A list may be shorter than chosen, but never shorter than FEWEST, see `_kind`.
        most = rng.randint(FEWEST, MOST) if kind == "listwise" else 1
        responses = rng.sample(question.bad, min(most, len(question.bad)))
        label = rng.randint(0, len(responses))
        responses.insert(label, rng.choice(question.good))
        return {"responses": responses, "label": letter(label)}
