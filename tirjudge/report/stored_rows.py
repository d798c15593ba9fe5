"""Rows of other projects' stored outputs in the form of a result file's rows, which a page can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tirjudge.evaluation.base import PREFERENCE, SOURCES, JudgedRow, Vote, decision
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.records.recorded_row import RecordedRow, read_result_row
from tirjudge.records.verdicts import verdict_credit
from tirjudge_environments.orders import letter


def stored_rows(run: Replay) -> Iterator[tuple[RecordedRow, Mapping[str, Any]]]:
    """Yield the rows of a run, each with its fields as a result file would have them.

    The prompt stands for what rows have in common. Raises ValueError as the run itself does.
    """
    for judged, row in run.with_rows():
        fields = _fields(judged, run.format.name, row.where)
        yield read_result_row(fields, row.where), fields | {"prompt": judged.cluster}


def _fields(row: JudgedRow, format: str, where: str) -> dict[str, Any]:
    best, tied = decision(row), len(decision(row)) > 1
    labelled = row.label is not None and row.candidates > 1
    decided = bool(best) or row.extras.get(PREFERENCE) is not None
    unread = next((vote.stop for vote in row.votes if vote.stop != "verdict"), "malformed")
    cost = row.cost
    return {
        "id": str(row.id),
        "format": format,
        "verdict": None if not best else "tie" if tied else letter(best[0]),
        "choice": best[0] if len(best) == 1 else None,
        "label": row.label,
        "correct": verdict_credit(best, row.label) if labelled and row.label is not None else None,
        "stop": "verdict" if decided else unread,
        "domain": row.domain,
        "tags": list(row.tags),
        "sources": list(row.extras.get(SOURCES, ())),
        "views": [_view(vote, row.candidates) for vote in row.votes],
        "prompt_tokens": int(cost.prompt_tokens) if cost else 0,
        "completion_tokens": int(cost.completion_tokens) if cost else 0,
        "seconds": cost.seconds if cost else 0.0,
        "where": where,
    }


def _view(vote: Vote, candidates: int) -> dict[str, Any]:
    scores = {str(index): score for index, score in vote.scores.items()}
    verdict = {"choice": vote.choice, "tie": vote.tie, "scores": scores} if vote.best else None
    order = list(vote.order) or list(range(candidates))
    shown = {"view": "", "order": order, "sample": vote.sample, "stop": vote.stop}
    return shown | {"verdict": verdict, "segments": []}
