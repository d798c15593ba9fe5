"""The numbers of `tirjudge eval`: a run scored, or two runs compared, under each protocol, and printed."""

from __future__ import annotations

from collections.abc import Sequence

from tirjudge.cli.errors import say
from tirjudge.cli.tables import (
    print_comparable,
    print_comparison,
    print_incomparable,
    print_others,
    print_score,
)
from tirjudge.evaluation.base import ScoringProtocol, Unscorable
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
from tirjudge.evaluation.scoring import compare, score
from tirjudge.evaluation.stored_outputs.reading import Replay

Records = list[dict[str, object]]


def scored(runs: list[Replay], named: list[str], seed: int) -> tuple[Records, bool]:
    """Score one run, or compare two; return the records, and whether a named protocol did not fit the rows.

    Raises ValueError, in one line, for an unknown protocol, unreadable rows, and when no protocol fits.
    """
    names = named or default_protocols(runs[0])
    if len(runs) == 1:
        return _score_run(runs[0], names, named=bool(named), seed=seed)
    return _compare_runs(runs, names, named=bool(named), seed=seed)


def _score_run(run: Replay, names: Sequence[str], *, named: bool, seed: int = 0) -> tuple[Records, bool]:
    """Print a run under each protocol; return the records, and whether a named protocol did not fit.

    Protocols that were not `named` are shown only if they fit. Raises ValueError for an unknown name, for
    unreadable rows, and when no protocol fits.
    """
    records: Records = []
    unfit = []
    rows = BenchmarkRows(run.benchmark)
    for protocol in distinct_protocols(names):
        try:
            result = score(protocol, rows.watch(run), seed=seed)
        except Unscorable as error:
            unfit.append(_reason(protocol, error))
            continue
        found = comparable(result, run.benchmark)
        print_score(result)
        record = score_record(result)
        if found and rows.fault:
            print_incomparable(rows.fault, run.benchmark)
            record["not_comparable"], found = rows.fault, []
        print_comparable(result, found)
        records.append(record | {"published": [published_record(one) for one in found]})
    _say_unfit(unfit, named=named, some=bool(records))
    if run.dropped:
        say(f"tirjudge eval: {run.dropped} rows with an id that occurred before are not counted")
    print_others(run.benchmark, [str(record["protocol"]) for record in records])
    return records, named and bool(unfit)


def _compare_runs(
    runs: Sequence[Replay], names: Sequence[str], *, named: bool, seed: int = 0
) -> tuple[Records, bool]:
    """Print two runs side by side under each protocol; return as `_score_run` does."""
    records: Records = []
    unfit = []
    for protocol in distinct_protocols(names):
        try:
            compared = compare(protocol, *paired_units(protocol, runs[0], runs[1]), seed=seed)
        except Unscorable as error:
            unfit.append(_reason(protocol, error))
            continue
        print_comparison(compared, [run.name for run in runs])
        records.append(comparison_record(compared))
    _say_unfit(unfit, named=named, some=bool(records))
    return records, named and bool(unfit)


def _reason(protocol: ScoringProtocol, error: Unscorable) -> str:
    return f"{protocol.card.name}: {error}"


def _say_unfit(unfit: Sequence[str], *, named: bool, some: bool) -> None:
    if not some:
        raise ValueError(f"no protocol can score these rows: {'; '.join(unfit)}")
    for reason in unfit if named else ():
        say(f"tirjudge eval: {reason}")
