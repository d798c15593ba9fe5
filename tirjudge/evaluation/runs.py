"""Stored runs under their protocols: which ones fit, the figures published under them, and JSON records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tirjudge.evaluation.base import JudgedRow, ProtocolCard, ScoringProtocol, Units, Unscorable
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.published import ANY, PublishedFigure, published
from tirjudge.evaluation.run_checks import BenchmarkRows, LabelCheck
from tirjudge.evaluation.scoring import Comparison, Estimate, Score, score
from tirjudge.evaluation.stored_outputs.reading import Replay

_Measured = TypeVar("_Measured")
_TIRJUDGE = "tirjudge"
"""The format of tirjudge's own result files."""
_SAMPLED = ("self-consistency", "mean-score")
"""Further protocols for runs with several samples of each row."""


def default_protocols(run: Replay) -> tuple[str, ...]:
    """Return the protocols of the benchmark and those for every run, or else of the file's format."""
    if run.format.name != _TIRJUDGE or run.benchmark not in benchmark_names():
        return tuple(run.format.protocols)
    sampled = any(vote.sample for vote in next(iter(run)).votes)
    return (*open_benchmark(run.benchmark).protocols, *(_SAMPLED if sampled else ()), "errors", "cost")


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run under one protocol, with the published figures that are under the same one."""

    score: Score
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
    watched = BenchmarkRows(benchmark)

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


def comparable(score: Score, benchmark: str) -> list[PublishedFigure]:
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


def score_record(score: Score) -> dict[str, object]:
    """Return a score as JSON: figures as shares, not as percentages; null for unknown values."""
    return card_record(score.card) | {
        "figures": {name: _estimate_record(one) for name, one in score.estimates.items()},
        "units": len(score.units.ids),
        "counts": dict(score.units.counts),
    }


def comparison_record(comparison: Comparison) -> dict[str, object]:
    return card_record(comparison.card) | {
        "first": {name: _finite(value) for name, value in comparison.first.items()},
        "second": {name: _finite(value) for name, value in comparison.second.items()},
        "differences": {name: _estimate_record(one) for name, one in comparison.differences.items()},
        "paired": comparison.paired,
        "common": comparison.common,
        "left_out": comparison.left_out,
        "only_first": list(comparison.only_first),
        "only_second": list(comparison.only_second),
        "gained": comparison.gained,
        "lost": comparison.lost,
        "p_value": comparison.p_value,
    }


def card_record(card: ProtocolCard) -> dict[str, object]:
    """Return a protocol's name and definitions as JSON."""
    return {"protocol": card.name, "about": card.about, "ties": card.ties, "failures": card.failures}


def _estimate_record(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _finite(estimate.value),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
        "n": estimate.n,
    }


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
