"""The numbers of `tirjudge eval`: a run scored, or two runs compared, under each protocol, and printed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tirjudge.cli.errors import say
from tirjudge.cli.tables import (
    comparison_headline,
    headline,
    print_comparable,
    print_comparison,
    print_incomparable,
    print_others,
    print_score,
)
from tirjudge.evaluation.base import ScoringProtocol, Unscorable
from tirjudge.evaluation.published import PublishedFigure
from tirjudge.evaluation.run_checks import BenchmarkRows
from tirjudge.evaluation.runs import (
    comparable,
    comparison_record,
    default_protocols,
    distinct_protocols,
    paired_units,
    published_record,
    score_record,
)
from tirjudge.evaluation.scoring import Score, compare, score
from tirjudge.evaluation.stored_outputs.reading import Replay

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
    names = named or default_protocols(runs[0])
    if len(runs) == 1:
        return _score_run(runs[0], names, named=bool(named), seed=seed, shown=shown)
    return _compare_runs(runs, names, named=bool(named), seed=seed, shown=shown)


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
    for protocol in distinct_protocols(names):
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
    for protocol in distinct_protocols(names):
        try:
            compared = compare(protocol, *paired_units(protocol, runs[0], runs[1]), seed=seed)
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


def _reason(protocol: ScoringProtocol, error: Unscorable) -> str:
    return f"{protocol.card.name}: {error}"


def _say_unfit(unfit: Sequence[str], *, named: bool, some: bool) -> None:
    if not some:
        raise ValueError(f"no protocol can score these rows: {'; '.join(unfit)}")
    for reason in unfit if named else ():
        say(f"tirjudge eval: {reason}")
