"""The numbers of `tirjudge eval`: a run scored, or two runs compared, under each protocol, and printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from tirjudge.cli.errors import say
from tirjudge.cli.tables import (
    comparable,
    comparison_headline,
    comparison_record,
    headline,
    print_comparable,
    print_comparison,
    print_incomparable,
    print_others,
    print_score,
    published_record,
    score_record,
)
from tirjudge.evaluation.base import ScoringProtocol, Units, Unscorable
from tirjudge.evaluation.benchmarks import benchmark_names, open_benchmark
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.published import PublishedFigure
from tirjudge.evaluation.run_checks import BenchmarkRows, LabelCheck
from tirjudge.evaluation.scoring import Score, compare, score
from tirjudge.evaluation.stored_outputs.reading import Replay

TIRJUDGE = "tirjudge"
"""The format of tirjudge's own result files."""
SAMPLED = ("self-consistency", "mean-score")
"""Further protocols for runs with several samples of each row."""
Records = list[dict[str, object]]


class Shown(Enum):
    """The parts of a result that are printed."""

    NOTHING = "nothing"
    """Only the records are needed."""
    LINES = "lines"
    """One line to quote for each protocol."""
    FULL = "full"
    """The same lines, and every figure, definition, count and published figure."""


def scored(runs: list[Replay], named: list[str], seed: int, shown: Shown) -> tuple[Records, bool]:
    """Score one run, or compare two; return the records, and whether a named protocol did not fit the rows.

    Raises ValueError, in one line, for an unknown protocol, unreadable rows, and when no protocol fits.
    """
    names = named or _protocols(runs[0])
    if len(runs) == 1:
        return _score_run(runs[0], names, named=bool(named), seed=seed, shown=shown)
    return _compare_runs(runs, names, named=bool(named), seed=seed, shown=shown)


def _protocols(run: Replay) -> tuple[str, ...]:
    """Return the protocols of the benchmark and those for every run, or else of the file's format."""
    if run.format.name != TIRJUDGE or run.benchmark not in benchmark_names():
        return tuple(run.format.protocols)
    sampled = any(vote.sample for vote in next(iter(run)).votes)
    return (*open_benchmark(run.benchmark).protocols, *(SAMPLED if sampled else ()), "errors", "cost")


def _score_run(
    run: Replay, names: Sequence[str], *, named: bool, seed: int, shown: Shown
) -> tuple[Records, bool]:
    """Score a run under each protocol; return the records, and whether a named protocol did not fit.

    Protocols that were not `named` are shown only if they fit. Raises ValueError for an unknown name, for
    unreadable rows, and when no protocol fits.
    """
    records: Records = []
    unfit = []
    results: list[tuple[Score, list[PublishedFigure]]] = []
    rows = BenchmarkRows(run.benchmark)
    for protocol in _distinct(names):
        try:
            result = score(protocol, rows.watch(run), seed=seed)
        except Unscorable as error:
            unfit.append(_reason(protocol, error))
            continue
        found = comparable(result, run.benchmark)
        record = score_record(result)
        if found and rows.fault:
            record["not_comparable"] = rows.fault
        comparable_found = [] if rows.fault else found
        results.append((result, found))
        records.append(record | {"published": [published_record(one) for one in comparable_found]})
    _say_unfit(unfit, named=named, some=bool(records))
    if run.dropped:
        say(f"tirjudge eval: {run.dropped} rows with an id that occurred before are not counted")
    if shown is not Shown.NOTHING:
        print("\n".join(headline(result, run.name) for result, _ in results))
    if shown is Shown.FULL:
        _print_in_full(results, rows.fault, run.benchmark)
    return records, named and bool(unfit)


def _print_in_full(
    results: Sequence[tuple[Score, list[PublishedFigure]]], fault: str, benchmark: str
) -> None:
    """Print every figure of a run next to published ones, which a `fault` of its rows makes incomparable."""
    for result, found in results:
        print()
        print_score(result)
        if found and fault:
            print_incomparable(fault, benchmark)
        else:
            print_comparable(result, found)
    print_others(benchmark, [result.card.name for result, _ in results])


def _compare_runs(
    runs: Sequence[Replay], names: Sequence[str], *, named: bool, seed: int, shown: Shown
) -> tuple[Records, bool]:
    """Compare two runs under each protocol; return as `_score_run` does."""
    records: Records = []
    unfit = []
    comparisons, files = [], [run.name for run in runs]
    for protocol in _distinct(names):
        try:
            compared = compare(protocol, *_units(protocol, runs[0], runs[1]), seed=seed)
        except Unscorable as error:
            unfit.append(_reason(protocol, error))
            continue
        comparisons.append(compared)
        records.append(comparison_record(compared))
    _say_unfit(unfit, named=named, some=bool(records))
    if shown is not Shown.NOTHING:
        print("\n".join(comparison_headline(compared, files) for compared in comparisons))
    for compared in comparisons if shown is Shown.FULL else ():
        print()
        print_comparison(compared, files)
    return records, named and bool(unfit)


def _units(protocol: ScoringProtocol, first: Replay, second: Replay) -> tuple[Units, Units]:
    """Return the units of two runs, whose labels are compared on the way; the labels are freed afterwards."""
    labels = LabelCheck((first.name, second.name))
    return protocol.units(labels.first(first)), protocol.units(labels.second(second))


def _distinct(names: Sequence[str]) -> Iterable[ScoringProtocol]:
    """Return each protocol once, even if it was named by several of its names."""
    return {protocol.card.name: protocol for protocol in map(open_protocol, names)}.values()


def _reason(protocol: ScoringProtocol, error: Unscorable) -> str:
    return f"{protocol.card.name}: {error}"


def _say_unfit(unfit: Sequence[str], *, named: bool, some: bool) -> None:
    if not some:
        raise ValueError(f"no protocol can score these rows: {'; '.join(unfit)}")
    for reason in unfit if named else ():
        say(f"tirjudge eval: {reason}")
