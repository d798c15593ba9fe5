"""RationaleRM's benchmarks: people's reasons in atomic points, with which a judge's reasons are matched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tirjudge.evaluation.benchmarks.base import Benchmark, Fields, Part, PublishedRow
from tirjudge.evaluation.judged_rows import Figures, JudgedRow, MatchedReasons, ProtocolCard, Units
from tirjudge.evaluation.scoring import UnitsBuilder, drawn_vote, section_figures
from tirjudge.evaluation.stored_outputs.base import Record, Unreadable, need_list, need_object, shown
from tirjudge.statistics.estimators import Mean
from tirjudge_environments import Malformed, Question
from tirjudge_environments.formats.rationale import EVALUATED, reasons_ask
from tirjudge_environments.rationales import Matching, match, read_matching, read_scores


def _read(row: PublishedRow) -> Iterator[Fields]:
    """Yield a pair with people's reasons, and with its label if the row has one."""
    preference = row.fields.get("overall_preference")
    label = None if not isinstance(preference, int) else "AB"[preference > 0] if preference else "tie"
    yield {
        "id": row.fields.get("id") or f"{row.part}/{row.number}",
        "prompt": row.need("context"),
        "responses": [row.need("response1"), row.need("response2")],
        "checklist": row.several("human-checklist"),
        "label": label,
        "domain": row.fields.get("domain") or "",
    }


_COLUMNS = {
    "context": "chat messages, or a text",
    "response1": "a response",
    "response2": "the other",
    "human-checklist": "list: people's reasons, one point each",
    "domain, id": "optional",
    "overall_preference": "optional: from -3 (response 1) to 3 (response 2)",
}


HELPSTEER3_ATOMIC = Benchmark(
    name="helpsteer3-atomic",
    about="Agreement of a judge's reasons with people's (Wang et al., RationaleRM)",
    parts=(Part(name="test", hub="Qwen/RationaleRM", file="data/helpsteer3_test_1000.jsonl", rows=1000),),
    columns=_COLUMNS,
    protocols=("rationale-consistency", "one-order"),
    licence="see its card; HelpSteer3 is CC-BY-4.0",
    format="rationale",
    read=_read,
)


CW_ATOMIC = Benchmark(
    name="cw-atomic",
    about="Agreement of a judge's reasons with people's, in creative writing (Wang et al., RationaleRM)",
    parts=(Part(name="test", rows=207),),
    columns=_COLUMNS,
    protocols=("rationale-consistency", "one-order"),
    licence="not published",
    format="rationale",
    read=_read,
)


class RationaleConsistency:
    """Mean soft recall of the matchings, and the accuracy of the verdicts."""

    card = ProtocolCard(
        name="rationale-consistency",
        about="mean soft recall of people's reasons by the judge's first five, matched one to one",
        ties="are verdicts: right where the label is a tie",
        failures="a judge without reasons scores 0; rows that the MetaJudge does not answer are left out",
        source="Rationale, Eq. 1 and 2, section 2.3",
    )

    def units(self, rows: Iterable[JudgedRow]) -> Units:
        builder = UnitsBuilder()
        for row in rows:
            if row.reasons is None:
                builder.counts["left out: not matched (give --meta-judge)"] += 1
                continue
            if row.reasons.recall is None or row.reasons.average_precision is None:
                builder.counts["left out: no answer from the MetaJudge"] += 1
                continue
            labelled = bool(row.votes) and (row.tied or row.label is not None)
            right = labelled and self._right(row, builder)
            builder.add_row(row, row.reasons.recall, row.reasons.average_precision, labelled, right)
        return builder.build()

    def _right(self, row: JudgedRow, builder: UnitsBuilder) -> bool:
        vote = drawn_vote(row)
        if not vote.best:
            builder.counts["no verdict"] += 1
        return vote.tie if row.tied else vote.choice == row.label

    def figures(self, units: Units) -> Figures:
        recall, precision, labelled, right = units.values.T
        figures = {"rationale consistency": Mean(recall), "average precision": Mean(precision)}
        if labelled.any():
            places = np.flatnonzero(labelled)
            figures["outcome accuracy"] = Mean(right[places], places=places)
        return figures | (section_figures(units, recall) if len(units.sections) > 1 else {})


RATIONALE_CONSISTENCY_PROTOCOL = RationaleConsistency()


Matched = dict[str, MatchedReasons]


class Answering(Protocol):
    """Answers questions: a model, or its earlier answers."""

    async def answers(self, asks: Iterable[Question]) -> dict[str, str]:
        """Return answers by the key of their question; unanswered questions are missing."""


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


async def matched(rows: Iterable[Mapping[str, Any]], answering: Answering) -> Matched:
    """Return the matched reasons of rows with a checklist, by row id.

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


def _measured(one: _Reasons, answers: Mapping[str, str]) -> MatchedReasons:
    if one.ask is None:  # A judge without reasons expresses none of people's, and needs no model.
        matching: Matching | Malformed = Matching((), len(one.checklist), 0)
    elif one.ask.key in answers:
        matching = read_matching(answers[one.ask.key], humans=len(one.checklist), reasons=len(one.reasons))
    else:
        matching = Malformed("no answer")
    return _reasons_of(matching)


def _reasons_of(matching: Matching | Malformed) -> MatchedReasons:
    if isinstance(matching, Malformed):
        return MatchedReasons(None, None)
    return MatchedReasons(matching.recall, matching.average_precision)


_PEOPLE = "human-checklist"
_SUFFIX = "-checklist"


class MetaJudgeOutputs:
    """Reads `samples[0].generated_text` as the reward of the format rationale does, matched one to one."""

    name = "metajudge"
    about = "Qwen/RationaleRM: outputs of metajudge_infer.py"
    benchmark = "helpsteer3-atomic"
    protocols = ("rationale-consistency",)

    def recognises(self, row: Record) -> bool:
        metadata = row.get("metadata")
        return "samples" in row and isinstance(metadata, dict) and _PEOPLE in metadata

    def read(self, row: Record, label: Record | None, default_id: str) -> Iterable[JudgedRow]:
        metadata = need_object(row, "metadata")
        judges = [key for key in metadata if key.endswith(_SUFFIX) and key != _PEOPLE]
        if len(judges) != 1:
            raise Unreadable(
                f"the metadata needs one judge's checklist, and has {', '.join(judges) or 'none'}"
            )
        people, reasons = (need_list(metadata, name) for name in (_PEOPLE, judges[0]))
        samples = need_list(row, "samples")
        first = samples[0] if samples else {"generated_text": ""}
        if not isinstance(first, dict) or not isinstance(first.get("generated_text"), str):
            raise Unreadable(f"samples holds {shown(first)}, not an object with a text 'generated_text'")
        matching = _matching(first["generated_text"], humans=len(people), reasons=len(reasons))
        yield JudgedRow(
            id=default_id, votes=(), domain=str(metadata.get("domain") or ""), reasons=_reasons_of(matching)
        )


METAJUDGE_OUTPUTS = MetaJudgeOutputs()


def _matching(answer: str, *, humans: int, reasons: int) -> Matching | Malformed:
    """Match the judge's first five reasons."""
    scores = read_scores(answer, humans=humans, reasons=reasons)
    if isinstance(scores, Malformed):
        return scores
    counted = min(reasons, EVALUATED)
    return match([row[:counted] for row in scores], counted)
