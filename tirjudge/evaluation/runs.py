"""Stored runs under their protocols: which ones fit, whether their rows are the benchmark's, JSON records."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.judged_rows import JudgedRow, ProtocolCard, ScoringProtocol, Units, Unscorable
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.published import ANY, PublishedFigure, published
from tirjudge.evaluation.scoring import Comparison, Estimate, ProtocolScore, cluster_count, score
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.evaluation.who_won import WhoWon
from tirjudge.statistics.printed import bounds_record

DISAGREEMENT = "the interval and the test disagree about a difference of zero: take neither as settled"
"""The sentence behind a comparison of which `disagrees` is True."""
_Measured = TypeVar("_Measured")
_TIRJUDGE = "tirjudge"
"""The format of tirjudge's own result files."""
_COLUMNS = "columns"
"""The format of files whose columns the user names."""
_SAMPLED = ("self-consistency", "mean-score")
"""Further protocols for runs with several samples of each row."""
_ALONE = ("verdict", "ratings", "kappa", "errors", "cost")
"""Protocols for runs about single responses."""


def default_protocols(run: Replay) -> tuple[str, ...]:
    """Return the protocols of the benchmark and those for every run, or else of the file's format."""
    if run.format.name not in (_TIRJUDGE, _COLUMNS):
        return tuple(run.format.protocols)
    first = next(iter(run), None)
    votes = first.votes if first is not None and first.candidates > 1 else ()
    sampled = any(vote.sample for vote in votes)
    if run.format.name == _COLUMNS:
        scored = any(vote.scores for vote in votes)
        return (*run.format.protocols, *(_SAMPLED[: 1 + scored] if sampled else ()))
    if run.benchmark not in benchmark_names():
        return _ALONE if first is not None and first.passes else tuple(run.format.protocols)
    return (*open_benchmark(run.benchmark).protocols, *(_SAMPLED if sampled else ()), "errors", "cost")


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run under one protocol, with the published figures that are under the same one."""

    score: ProtocolScore
    published: Sequence[PublishedFigure]
    """See `comparable`."""
    fault: str
    """The reason why the run cannot be compared with `published`; empty if it can."""


def score_run(
    rows: Iterable[JudgedRow], names: Sequence[str], benchmark: str, *, seed: int
) -> tuple[list[ScoredRun], list[str]]:
    """Score the rows of a run under each protocol; return as `fitting` does.

    The rows are read once for each protocol. Raises ValueError for an unknown protocol and unreadable rows.
    """
    watched = RowCheck(benchmark)

    def scored(protocol: ScoringProtocol) -> ScoredRun:
        result = score(protocol, watched.watch(rows), seed=seed)
        found = comparable(result, benchmark)
        # Read now: a later protocol that does not fit stops in the middle of the rows.
        return ScoredRun(result, found, watched.fault if found else "")

    return fitting(names, scored)


def fitting(
    names: Sequence[str], measure: Callable[[ScoringProtocol], _Measured]
) -> tuple[list[_Measured], list[str]]:
    """Measure under each protocol that fits the rows; return the results, and why the others do not fit.

    A protocol that was named by several of its names counts once. Raises ValueError for an unknown one.
    """
    found, unfit = [], []
    for protocol in {one.card.name: one for one in map(open_protocol, names)}.values():
        try:
            found.append(measure(protocol))
        except Unscorable as error:
            unfit.append(f"{protocol.card.name}: {error}")
    return found, unfit


def paired_units(protocol: ScoringProtocol, first: Replay, second: Replay) -> tuple[Units, Units]:
    """Return the units of two runs, whose labels are compared on the way; the labels are freed afterwards."""
    labels = LabelCheck((first.name, second.name))
    return protocol.units(labels.first(first)), protocol.units(labels.second(second))


def comparable(score: ProtocolScore, benchmark: str) -> list[PublishedFigure]:
    """Return published values under the same protocol, for the first figure of a score that a paper prints.

    Each value occurs once, the highest first; a paper's value over all of its benchmarks is included. Empty
    if no paper has one.
    """
    papers = {one.paper for one in published() if one.benchmark == benchmark}
    alike = [
        one
        for one in published()
        if one.benchmark == benchmark or (one.benchmark == ANY and one.paper in papers)
        if (one.protocol, one.unit) == (score.card.name, "share")
    ]
    for figure, measured in score.estimates.items():
        found = {(one.paper, one.model, one.value): one for one in reversed(alike) if one.figure == figure}
        if found and not math.isnan(measured.value):
            return sorted(found.values(), key=lambda one: -one.value)
    return []


def unlike_sections(names: Iterable[str]) -> list[list[str]]:
    """Return the names of sections that differ only in case or spaces, which are probably one section."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(" ".join(name.split()).casefold(), []).append(name)
    return [found for found in alike.values() if len(found) > 1]


def score_record(score: ProtocolScore) -> dict[str, object]:
    """Return a score as JSON: figures as shares, not as percentages; null for unknown values."""
    won = WhoWon.of(score)
    return (
        card_record(score.card)
        | ({} if won is None else {"who_won": won.record()})
        | {
            "figures": {name: estimate_record(one) for name, one in score.estimates.items()},
            "units": len(score.units.ids),
            "clusters": cluster_count(score.units),
            "counts": dict(score.units.counts),
        }
    )


def comparison_record(comparison: Comparison) -> dict[str, object]:
    return card_record(comparison.card) | {
        "first": {name: _finite(value) for name, value in comparison.first.items()},
        "second": {name: _finite(value) for name, value in comparison.second.items()},
        "differences": {
            name: estimate_record(one) | {"detectable": _finite(comparison.detectable.get(name, math.nan))}
            for name, one in comparison.differences.items()
        },
        "paired": comparison.paired,
        "common": comparison.common,
        "left_out": comparison.left_out,
        "only_first": list(comparison.only_first),
        "only_second": list(comparison.only_second),
        "gained": comparison.gained,
        "lost": comparison.lost,
        "p_value": comparison.p_value,
        "p_holm": comparison.p_holm,
        "test": comparison.test if comparison.p_value is not None else None,
        "disagreement": DISAGREEMENT if comparison.disagrees else "",
        "clusters": comparison.clusters,
        "no_verdict": list(comparison.no_verdict),
    }


def card_record(card: ProtocolCard) -> dict[str, object]:
    """Return a protocol's name and definitions as JSON."""
    return {"protocol": card.name, "about": card.about, "ties": card.ties, "failures": card.failures}


def estimate_record(estimate: Estimate) -> dict[str, Any]:
    record = {**bounds_record(estimate.value, estimate.low, estimate.high), "n": estimate.n}
    return record | ({"no_interval": estimate.no_interval} if estimate.no_interval else {})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def published_record(one: PublishedFigure) -> dict[str, object]:
    return {
        "paper": one.paper,
        "table": one.table,
        "model": one.model,
        "figure": one.figure,
        "value": one.value,
    }


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TIED, _UNLABELLED = -1, -2
"""Codes next to the indices of labels."""


class RowCheck:
    """Compares a run with the rows of a benchmark's standard parts, on which papers print figures.

    Rows of a group (`group=ID`) count as one.
    """

    def __init__(self, benchmark: str) -> None:
        """Any rows are right if the benchmark or its number of rows is not known."""
        self._benchmark = open_benchmark(benchmark) if benchmark in benchmark_names() else None
        parts = () if self._benchmark is None else self._benchmark.chosen_parts()
        sizes = [part.rows for part in parts if part.rows is not None]
        countable = self._benchmark is not None and self._benchmark.row_by_row and len(sizes) == len(parts)
        self._parts = parts if countable else ()
        self._expected = sum(sizes)
        self._groups = set[tuple[str, str]]()
        self._count = 0
        self._ids: list[str] = []
        self._sections: Counter[str] = Counter()

    def watch(self, rows: Iterable[JudgedRow]) -> Iterator[JudgedRow]:
        """Yield the rows of a run, in which no row occurs twice; they are counted from the start."""
        self._groups, self._count, self._ids, self._sections = set(), 0, [], Counter()
        for row in rows:
            if self._parts:
                self._add(row)
            yield row

    @property
    def fault(self) -> str:
        """Return the difference of the rows, such as `270 of 350 rows`; empty if all rows are there."""
        if not self._parts or self._benchmark is None:
            return ""
        if self._count != self._expected:
            return f"{self._count} of {self._expected} rows"
        digest = ids_digest(self._ids)
        alone = len(self._parts) == 1
        foreign = alone and bool(self._parts[0].ids) and self._parts[0].ids != digest
        sections = self._benchmark.sections
        if foreign or (sections and dict(self._sections) != dict(sections)):
            return f"{self._count} rows that are not those of {self._benchmark.name}"
        return ""

    def _add(self, row: JudgedRow) -> None:
        group = row.tag("group")
        if group:
            if (row.domain, group) in self._groups:
                return
            self._groups.add((row.domain, group))
        self._count += 1
        self._sections[row.domain] += 1
        # The ids matter only if there are as many as the benchmark has.
        if self._count <= self._expected:
            self._ids.append(group or row.id)


def ids_digest(ids: Iterable[str]) -> str:
    """Return a digest of a set of row ids, as `Part.ids` holds it."""
    return blake2b("\n".join(sorted(ids)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class LabelCheck:
    """Compares the labels of two runs, of which the first is read before the second.

    A row is known by its domain and id: RMB numbers rows in each section from 0.
    """

    def __init__(self, names: tuple[str, str]) -> None:
        """`names` are the names of the runs for messages."""
        self._names = names
        # Sorted arrays of hashes and labels: a dictionary of a million rows takes ten times the memory.
        self._rows, self._labels = array("q"), array("q")

    def first(self, rows: Iterable[JudgedRow]) -> Iterator[JudgedRow]:
        """Yield the rows of the first run; of rows with the same id and section the first counts."""
        found, labels = array("q"), array("q")
        for row in rows:
            found.append(hash((row.domain, row.id)))
            labels.append(_label(row))
            yield row
        order = np.argsort(np.array(found), kind="stable")
        self._rows = array("q", np.array(found)[order].tobytes())
        self._labels = array("q", np.array(labels)[order].tobytes())

    def second(self, rows: Iterable[JudgedRow]) -> Iterator[JudgedRow]:
        """Yield the rows of the second run. Raises ValueError for one with another label in the first."""
        for row in rows:
            key = hash((row.domain, row.id))
            place = bisect_left(self._rows, key)
            if place < len(self._rows) and self._rows[place] == key:
                self._check(row, self._labels[place])
            yield row

    def _check(self, row: JudgedRow, before: int) -> None:
        after = _label(row)
        if before != after and _UNLABELLED not in (before, after):
            raise ValueError(
                f"row {row.id!r}: its label is {_shown(before)} in {self._names[0]} and {_shown(after)} in "
                f"{self._names[1]}"
            )


def _label(row: JudgedRow) -> int:
    if row.label is not None:
        return row.label
    return _TIED if row.tied else _UNLABELLED


def _shown(label: int) -> str:
    if label == _TIED:
        return "a tie"
    return _LETTERS[label] if label < len(_LETTERS) else str(label)
