"""Rationale matching: a MetaJudge matches the reasons in a result file with people's reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tirjudge.evaluation.protocols.rationale_consistency import PRECISION, RECALL
from tirjudge_environments import Malformed, Question
from tirjudge_environments.formats.rationale import EVALUATED, reasons_ask
from tirjudge_environments.rationales import Matching, read_matching

Extras = dict[str, dict[str, Any]]


class Answering(Protocol):
    """Answers questions: a model, or its earlier answers."""

    async def answers(self, asks: Iterable[Question]) -> dict[str, str]:
        """Return answers by the key of their question; unanswered questions are missing."""
        ...


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """Stored answers of an earlier evaluation, used without a model."""

    by_key: Mapping[str, str]

    async def answers(self, asks: Iterable[Question]) -> dict[str, str]:
        return {ask.key: self.by_key[ask.key] for ask in asks if ask.key in self.by_key}


@dataclass(frozen=True, slots=True)
class _Reasons:
    id: str
    checklist: tuple[str, ...]
    reasons: tuple[str, ...]
    ask: Question | None
    """None without reasons."""


async def matched(rows: Iterable[Mapping[str, Any]], answering: Answering) -> Extras:
    """Return the extras for the protocol rationale-consistency, by row id, for rows with a checklist.

    The first view of a row counts, and its first five reasons (section 2.3). `answering` raises NotAnswered
    if its model is not available.
    """
    reasons = [_reasons(row) for row in rows if row.get("checklist")]
    answers = await answering.answers(one.ask for one in reasons if one.ask is not None)
    return {one.id: _measured(one, answers) for one in reasons}


def _reasons(row: Mapping[str, Any]) -> _Reasons:
    view = row["views"][0]
    parsed = (view["verdict"] or {}).get("parsed", {})
    reasons = tuple(map(str, parsed.get("reasons", ())))[:EVALUATED]
    checklist = tuple(row["checklist"])
    return _Reasons(str(row["id"]), checklist, reasons, reasons_ask(checklist, reasons, view["order"]))


def _measured(one: _Reasons, answers: Mapping[str, str]) -> dict[str, Any]:
    if one.ask is None:  # A judge without reasons expresses none of people's, and needs no model.
        matching: Matching | Malformed = Matching((), len(one.checklist), 0)
    elif one.ask.key in answers:
        matching = read_matching(answers[one.ask.key], humans=len(one.checklist), reasons=len(one.reasons))
    else:
        matching = Malformed("no answer")
    if isinstance(matching, Malformed):
        return {RECALL: None, PRECISION: None}
    return {RECALL: matching.recall, PRECISION: matching.average_precision}
