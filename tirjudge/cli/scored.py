"""Runs scored and compared: every protocol printed, and kept as a record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tirjudge.cli.one_line import say
from tirjudge.cli.published_tables import beside, print_beside, print_others, published_record
from tirjudge.cli.score_tables import comparison_record, print_comparison, print_score, score_record
from tirjudge.evaluation.base import ScoringProtocol, Unfit
from tirjudge.evaluation.protocols import open_protocol
from tirjudge.evaluation.scoring import compare, score
from tirjudge.evaluation.stored_outputs import Replay

Records = list[dict[str, object]]


def score_run(run: Replay, names: Sequence[str], *, named: bool, seed: int = 0) -> tuple[Records, bool]:
    """Print a run under each protocol; returns the records, and whether one that was named did not fit.

    Of protocols that nobody `named` those that fit are shown. Raises ValueError for a name that there is
    not, for rows that cannot be read, and when no protocol fits.
    """
    records: Records = []
    unfit = []
    for protocol in _different(names):
        try:
            scored = score(protocol, run, seed=seed)
        except Unfit as error:
            unfit.append(_reason(protocol, error))
            continue
        found = beside(scored, run.benchmark)
        print_score(scored)
        print_beside(scored, found)
        records.append(score_record(scored) | {"published": [published_record(one) for one in found]})
    _say(unfit, named=named, some=bool(records))
    print_others(run.benchmark, [str(record["protocol"]) for record in records])
    return records, named and bool(unfit)


def compare_runs(
    runs: Sequence[Replay], names: Sequence[str], *, named: bool, seed: int = 0
) -> tuple[Records, bool]:
    """Print two runs side by side under each protocol; otherwise as `score_run`."""
    records: Records = []
    unfit = []
    for protocol in _different(names):
        try:
            first, second = (protocol.units(run) for run in runs)
            compared = compare(protocol, first, second, seed=seed)
        except Unfit as error:
            unfit.append(_reason(protocol, error))
            continue
        print_comparison(compared, [run.path.name for run in runs])
        records.append(comparison_record(compared))
    _say(unfit, named=named, some=bool(records))
    return records, named and bool(unfit)


def _different(names: Sequence[str]) -> Iterable[ScoringProtocol]:
    """Each protocol once, whatever names it was called by."""
    return {protocol.card.name: protocol for protocol in map(open_protocol, names)}.values()


def _reason(protocol: ScoringProtocol, error: Unfit) -> str:
    return f"{protocol.card.name}: {error}"


def _say(unfit: Sequence[str], *, named: bool, some: bool) -> None:
    if not some:
        raise ValueError(f"no protocol can score these rows: {'; '.join(unfit)}")
    for reason in unfit if named else ():
        say(f"tirjudge eval: {reason}")
