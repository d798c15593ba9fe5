"""Judged runs for a page: the headline, scores under protocols, breakdowns, rows, and comparisons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from tirjudge.console_text import counted
from tirjudge.evaluation.judged_rows import JudgedRow, Vote, decision
from tirjudge.evaluation.runs import (
    LabelCheck,
    comparison_record,
    default_protocols,
    fitting,
    published_record,
    score_record,
    score_run,
)
from tirjudge.evaluation.scoring import Comparison, ProtocolScore, compare, with_holm
from tirjudge.evaluation.stored_outputs.files import matching_files
from tirjudge.evaluation.stored_outputs.reading import Replay, open_results
from tirjudge.evaluation.who_won import WhoWon, who_won_decided
from tirjudge.generation.spending import Price
from tirjudge.judging.tally import CheckerTally, EvidenceTally
from tirjudge.records.result_row import ResultRow, is_truncated, read_result_row, read_result_rows
from tirjudge.records.verdicts import rating_credit, verdict_credit
from tirjudge.report.breakdowns import (
    RowFacts,
    breakdowns,
    costs,
    criteria_shares,
    endings,
    histograms,
    positions,
)
from tirjudge.report.headline import decided, headline, sentence, trust, winner
from tirjudge.report.labelling import fingerprint, label_file
from tirjudge.report.row_table import FLAGS, RowTable, TableBuilder, Texts
from tirjudge.storage.json_lines import read_lines
from tirjudge.storage.result_file import failures_path, recorded_settings
from tirjudge_environments.orders import letter


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A judged run, read once."""

    name: str
    path: Path
    summary: Mapping[str, Any]
    """Everything above the table of rows, as JSON values."""
    table: RowTable
    rows: Sequence[JudgedRow]
    """The rows as protocols see them."""
    protocols: Sequence[str]


def read_run(
    path: Path,
    *,
    stored: Replay | None = None,
    labels: Path | None = None,
    texts: Texts = "all",
    price: Price | None = None,
    seed: int = 0,
) -> JudgedRun:
    """Read a result file of `judge`, `eval` or `bon`, or the `stored` outputs of another project.

    The files of a glob are one run. A file of `labels` replaces those of a result file.

    Raises OSError for a missing file, and ValueError, in one line, for a file without rows and for a file
    that is no result file.
    """
    facts, models, formats, notes, checkers = [], [], [], [], CheckerTally()
    files = matching_files(path) if stored is None else [path]
    run = stored or open_results(files, labels)
    rows = list(run)
    dropped = counted(run.dropped, "row") if run.dropped else ""  # until the next iteration
    evidence = run.evidence if stored is None else EvidenceTally()
    builder = TableBuilder(texts, evidence.apart)
    known = {} if labels is None else {row.id: row for row in rows}
    own = chain.from_iterable(map(read_result_rows, files))
    for row, fields in own if stored is None else _stored_rows(stored):
        row = _labelled(row, known[row.id]) if known else row
        builder.add(row)
        checkers.add(fields)
        facts.append(RowFacts.of(row))
        models.append(row.model)
        formats.append(row.format)
        notes.append(row.note)
    if not facts:
        raise ValueError(f"{path} has no complete row")
    protocols = default_protocols(run)
    scores, published, benchmark = _scores(rows, protocols, run.benchmark, seed)
    won = next(filter(None, map(WhoWon.of, scores)), None)
    won_decided = who_won_decided(rows, evidence)
    leading = evidence.counting(won, won_decided)
    order = positions(rows)
    table = builder.build({row.id: decision(row) for row in rows if not row.left_open})
    number = headline(scores, run.benchmark, evidence)
    failures = chain.from_iterable(read_lines(failures_path(file)) for file in files)
    ends = endings(facts, failures)
    name = path.name if stored else run.name
    summary = {
        "name": name,
        "rows": len(facts),
        "judged": ""
        if stored
        else datetime.fromtimestamp(files[0].stat().st_mtime, UTC).strftime("%Y-%m-%d"),
        "sentence": "" if run.benchmark else sentence(facts, number, leading or won, evidence),
        "headline": number,
        "winner": winner(leading),
        "trust": [
            *([decided(evidence, won_decided)] if evidence.known or evidence.programs else []),
            *trust(rows, scores, won, order, labels_here=any(table.candidates)),
            *_checked(checkers),
        ],
        "benchmark": run.benchmark,
        "models": [*dict.fromkeys(filter(None, models))],
        "formats": [*dict.fromkeys(filter(None, formats))],
        "notes": [*dict.fromkeys(filter(None, notes))],
        "settings": _settings(files[0]),
        "warnings": list(evidence.warnings()),
        "truncated": stored is None and any(map(is_truncated, files)),
        "dropped": dropped,
        "failed": counted(failed, "row") if (failed := sum(n for _, n in ends["failed"])) else "",
        "who_won": [won.record() | {"lines": list(won.lines())}] if won is not None else [],
        "breakdowns": breakdowns(facts),
        "criteria": criteria_shares(facts),
        "positions": order,
        "histograms": histograms(facts),
        "costs": costs(facts, price),
        "endings": ends,
        "scores": [score_record(one) | {"percent": one.card.percent} for one in scores],
        "published": published,
        "not_comparable": benchmark,
    }
    return JudgedRun(name, files[0], summary, table, rows, protocols)


def _labelled(row: ResultRow, judged: JudgedRow) -> ResultRow:
    """Return a row of a result file with the label of its judged row, which may be that of another file."""
    label, best = judged.label, decision(judged)
    if judged.passes:
        (rating,) = judged.ratings or (None,)
        rating = rating if label is None else bool(label)
        credit = rating_credit(rating, (row.scores or [None])[0], row.satisfied_from)
        return row.model_copy(update={"rating": rating, "correct": credit})
    compared = label is not None and not judged.left_open
    credit = verdict_credit(best, label) if compared and label is not None else None
    return row.model_copy(update={"label": label, "correct": credit})


def _checked(checkers: CheckerTally) -> Iterator[dict[str, Any]]:
    """Yield the share of checkers in the result, in the form of `trust`; nothing without checkers."""
    lines = [f"{heading} {line}".strip() for heading, line in checkers.lines()]
    if lines:
        value = lines[0].removeprefix("checkers ")
        yield {"name": "checkers", "value": value, "notes": lines[1:], "asks_for_labels": False}


def _scores(
    rows: Sequence[JudgedRow], protocols: Sequence[str], benchmark: str, seed: int
) -> tuple[list[ProtocolScore], list[dict[str, Any]], str]:
    """Return the scores under the protocols that fit, published figures, or why none can be compared."""
    results, _ = score_run(rows, protocols, benchmark, seed=seed)
    published: list[dict[str, Any]] = []
    fault = ""
    for one in results:
        if one.fault:
            fault = f"{one.fault}: not comparable with the figures published on {benchmark}"
        elif one.published:
            figure = one.published[0].figure
            published.append(
                {
                    "protocol": one.score.card.name,
                    "figure": figure,
                    "value": one.score.estimates[figure].value,
                    "rows": [published_record(found) for found in one.published],
                }
            )
    return [one.score for one in results], published, fault


def _settings(path: Path) -> dict[str, str]:
    """Return the settings that a run recorded and that differ from nothing, empty lists and the like."""
    return {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in (recorded_settings(path) or {}).items()
        if value not in (None, "", [], {})
    }


def comparisons(runs: Sequence[JudgedRun], seed: int = 0) -> list[dict[str, Any]]:
    """Return the comparison of the first run with every other one, under each protocol that fits both.

    Raises ValueError if the runs have no row in common, or one with another label.
    """
    found = with_holm([_compared(runs[0], other, seed) for other in runs[1:]])
    return [
        {
            "first": runs[0].name,
            "second": other.name,
            **_changed(runs[0].table, other.table, compared[0]),
            "tables": [comparison_record(one) | {"percent": one.card.percent} for one in compared],
        }
        for other, compared in zip(runs[1:], found, strict=True)
    ]


def _changed(first: RowTable, second: RowTable, compared: Comparison) -> dict[str, int | None]:
    """Return the rows that the second run gained and lost, as the filters of the page count them.

    Without labels they are the units that the comparison counts.
    """
    before, after = (dict(zip(one.ids, one.credits, strict=True)) for one in (first, second))
    credits = [(before[id], after[id]) for id in before if id in after]
    known = [(one, other) for one, other in credits if one is not None and other is not None]
    if not known:
        return {"gained": compared.gained, "lost": compared.lost}
    return {
        "gained": sum(one < other for one, other in known),
        "lost": sum(one > other for one, other in known),
    }


def _compared(first: JudgedRun, second: JudgedRun, seed: int) -> list[Comparison]:
    labels = LabelCheck((first.name, second.name))
    before, after = list(labels.first(first.rows)), list(labels.second(second.rows))
    if {row.id for row in before}.isdisjoint(row.id for row in after):
        raise ValueError(f"{first.name} and {second.name} cannot be compared: the runs have no row in common")
    found, unfit = fitting(
        first.protocols,
        lambda protocol: compare(protocol, protocol.units(before), protocol.units(after), seed=seed),
    )
    if not found:
        raise ValueError(f"{first.name} and {second.name} cannot be compared: {'; '.join(unfit)}")
    return found


def joined(runs: Sequence[JudgedRun]) -> dict[str, Any]:
    """Return the rows of all runs by id, and the changes between them.

    `order` has the numbers of the ids in the order of the judged file, where the runs have another. `places`
    has, for each id, its number in every run or -1. `changes` has 1 where a later run gained the
    row (its credit is higher than in the first), -1 where it lost it, 2 for another verdict of the same
    credit, and 0 for none.
    """
    numbers = [{id: number for number, id in enumerate(run.table.ids)} for run in runs]
    ids = [*dict.fromkeys(id for run in runs for id in run.table.ids)]
    places = [[found.get(id, -1) for found in numbers] for id in ids]
    named = [
        (id, digest) for run in runs for id, digest in zip(run.table.ids, run.table.digests, strict=True)
    ]
    data: dict[str, Any] = {
        "flags": FLAGS,
        "runs": [{"name": run.name, **run.table.data()} for run in runs],
        "labels": label_file(runs[0].path) | {"key": fingerprint(named)},
    }
    origins = [
        next(run.table.places[number] for run, number in zip(runs, place, strict=True) if number >= 0)
        for place in places
    ]
    order = sorted(range(len(ids)), key=lambda number: origins[number])
    if order != [*range(len(ids))]:
        data["order"] = order
    if len(runs) > 1:
        data["places"] = places
        data["changes"] = [_change(runs, place) for place in places]
    return data


def _change(runs: Sequence[JudgedRun], place: Sequence[int]) -> int:
    known = [(run.table, number) for run, number in zip(runs, place, strict=True) if number >= 0]
    if len(known) < 2:
        return 0
    (first, start), *others = known
    for table, number in others:
        before, after = first.credits[start], table.credits[number]
        if before is not None and after is not None and before != after:
            return 1 if after > before else -1
        if first.verdicts.text_at(start) != table.verdicts.text_at(number):
            return 2
    return 0


def _stored_rows(run: Replay) -> Iterator[tuple[ResultRow, Mapping[str, Any]]]:
    """Yield the rows of another project's stored outputs, each with its fields as a result file has them.

    The prompt stands for what rows have in common. Raises ValueError as the run itself does.
    """
    for judged, row in run.with_rows():
        fields = _fields(judged, run.format.name, row.where)
        yield read_result_row(fields, row.where), fields | {"prompt": judged.cluster}


def _fields(row: JudgedRow, format: str, where: str) -> dict[str, Any]:
    best, tied = decision(row), len(decision(row)) > 1
    labelled = row.label is not None and row.candidates > 1
    decided = bool(best) or (row.preference is not None and row.preference.value is not None)
    # A cell of another project's file is empty or unreadable; it has no dialogue that ended in some way.
    unread = "no verdict"
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
        "sources": list(row.sources),
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
