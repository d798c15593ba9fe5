"""The numbers of `tirjudge eval`: a run scored, or two runs compared, under each protocol, and printed."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tirjudge.cli.output import say
from tirjudge.cli.tables import (
    comparison_headline,
    headline,
    print_comparable,
    print_comparison,
    print_incomparable,
    print_others,
    print_score,
)
from tirjudge.evaluation.runs import (
    ScoredRun,
    comparison_record,
    default_protocols,
    fitting,
    paired_units,
    published_record,
    score_record,
    score_run,
)
from tirjudge.evaluation.scoring import compare
from tirjudge.evaluation.stored_outputs.reading import Replay
from tirjudge.storage.run_folder import JsonObject

Records = list[JsonObject]


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
    results, unfit = score_run(run, names, run.benchmark, seed=seed)
    _say_unfit(unfit, named=named, some=bool(results))
    if run.dropped:
        say(f"tirjudge eval: {run.dropped} rows with an id that occurred before are not counted")
    if shown is not Shown.NOTHING:
        print("\n".join(headline(one.score, run.name) for one in results))
    if shown is Shown.FULL:
        _print_in_full(results, run.benchmark)
    return [_record(one) for one in results], named and bool(unfit)


def _record(one: ScoredRun) -> JsonObject:
    not_comparable = {"not_comparable": one.fault} if one.fault else {}
    published = [] if one.fault else [published_record(figure) for figure in one.published]
    return score_record(one.score) | not_comparable | {"published": published}


def _print_in_full(results: Sequence[ScoredRun], benchmark: str) -> None:
    """Print every figure of a run next to published ones, unless its rows make them incomparable."""
    for one in results:
        print()
        print_score(one.score)
        if one.fault:
            print_incomparable(one.fault, benchmark)
        else:
            print_comparable(one.score, one.published)
    print_others(benchmark, [one.score.card.name for one in results])


def _compare_runs(
    runs: Sequence[Replay], names: Sequence[str], *, named: bool, seed: int, shown: Shown
) -> tuple[Records, bool]:
    """Compare two runs under each protocol; return as `_score_run` does."""
    files = [run.name for run in runs]
    comparisons, unfit = fitting(
        names, lambda protocol: compare(protocol, *paired_units(protocol, runs[0], runs[1]), seed=seed)
    )
    _say_unfit(unfit, named=named, some=bool(comparisons))
    if shown is not Shown.NOTHING:
        print("\n".join(comparison_headline(compared, files) for compared in comparisons))
    for compared in comparisons if shown is Shown.FULL else ():
        print()
        print_comparison(compared, files)
    return [comparison_record(compared) for compared in comparisons], named and bool(unfit)


def _say_unfit(unfit: Sequence[str], *, named: bool, some: bool) -> None:
    if not some:
        raise ValueError(f"no protocol can score these rows: {'; '.join(unfit)}")
    for reason in unfit if named else ():
        say(f"tirjudge eval: {reason}")
