"""Scores of a run under a protocol with their intervals, and comparisons of two runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, ScoringProtocol, Units, Unscorable
from tirjudge.evaluation.resampling import RESAMPLES, bootstrap_samples, central_interval
from tirjudge.evaluation.row_ids import RowIds
from tirjudge.statistics import Proportion, Statistic


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval: Wilson's for a proportion, otherwise bootstrap percentiles."""

    value: float
    low: float
    high: float
    n: int | None = None
    """Number of units behind the value; None if it is not known, as for rates of a published summary.

    In a comparison of summaries it is the smaller of the two numbers.
    """


@dataclass(frozen=True, slots=True)
class Score:
    """Numbers of a run under one protocol."""

    card: ProtocolCard
    estimates: Mapping[str, Estimate]
    """By name, the headline first."""
    units: Units

    @property
    def headline(self) -> str:
        """Name of the first estimate."""
        return next(iter(self.estimates))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs under one protocol, over the units that both contain; over all units if they are unpaired."""

    card: ProtocolCard
    differences: Mapping[str, Estimate]
    """Second minus first, with a bootstrap interval: the same draw for both runs if they are paired."""
    first: Mapping[str, float]
    second: Mapping[str, float]
    paired: bool
    """False if one of the runs was rebuilt from a summary, so that its rows cannot be found in the other."""
    common: int
    """Units in both runs; 0 if they are unpaired."""
    only_first: tuple[str, ...]
    """Ids of the units that only the first run contains; empty if they are unpaired."""
    only_second: tuple[str, ...]
    gained: int | None
    """Units that only the second run got right; None if units are not simply right or wrong."""
    lost: int | None
    """Units that only the first run got right; None like `gained`."""
    p_value: float | None
    """McNemar's exact two-sided test of gained against lost (McNemar 1947); None like `gained`."""

    @property
    def left_out(self) -> int:
        """Number of units that only one of the runs contains."""
        return len(self.only_first) + len(self.only_second)


def score(
    protocol: ScoringProtocol, rows: Iterable[JudgedRow], *, seed: int = 0, resamples: int = RESAMPLES
) -> Score:
    """Score judged rows under a protocol.

    `resamples` is the number of bootstrap draws, seeded by `seed`. Raises Unscorable if the protocol cannot
    score these rows.
    """
    units = protocol.units(rows)
    figures = protocol.figures(units)
    floats = [name for name, figure in figures.items() if not isinstance(figure, Proportion)]
    draws = resamples if floats else 0
    drawn = _bootstrap(protocol, [units], floats, seed, draws)[0]
    values, sizes = _values(figures), _sizes(figures, units)
    estimates = {
        name: Estimate(figure.rate, *figure.interval, n=figure.n)
        if isinstance(figure, Proportion)
        else _of_draws(values[name], drawn[name], sizes[name])
        for name, figure in figures.items()
    }
    return Score(protocol.card, estimates, units)


def compare(
    protocol: ScoringProtocol, first: Units, second: Units, *, seed: int = 0, resamples: int = RESAMPLES
) -> Comparison:
    """Compare the units of two runs over the same rows, paired by id.

    Runs that were rebuilt from summaries have no pairs: they are resampled independently, and all of their
    units count. Raises Unscorable if paired runs have no row in common, or one that belongs to another
    section in the second run, and ValueError without scipy (extra `eval`) if rows are right or wrong.
    """
    paired = first.paired and second.paired
    one, other, only_first, only_second = _paired(first, second) if paired else (first, second, (), ())
    figures = [protocol.figures(units) for units in (one, other)]
    values = [_values(found) for found in figures]
    sizes = [_sizes(found, units) for found, units in zip(figures, (one, other), strict=True)]
    names = [name for name in figures[0] if name in figures[1]]
    if paired:
        drawn = _bootstrap(protocol, [one, other], names, seed, resamples)
    else:
        drawn = [
            _bootstrap(protocol, [units], names, stream, resamples)[0]
            for units, stream in zip((one, other), np.random.SeedSequence(seed).spawn(2), strict=True)
        ]
    tested = paired and protocol.card.intervals
    gained, lost = _discordant(one, other) if tested else (None, None)
    return Comparison(
        card=protocol.card,
        differences={
            name: _of_draws(
                values[1][name] - values[0][name],
                drawn[1][name] - drawn[0][name],
                _smaller(sizes[0][name], sizes[1][name]),
            )
            for name in names
        },
        first=values[0],
        second=values[1],
        paired=paired,
        common=len(one.ids) if paired else 0,
        only_first=only_first,
        only_second=only_second,
        gained=gained,
        lost=lost,
        p_value=None if gained is None or lost is None else mcnemar(gained, lost),
    )


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test for these discordant pairs (McNemar 1947).

    Raises ValueError, in one line, without scipy.
    """
    if not gained + lost:
        return 1.0
    try:
        from scipy.stats import binomtest
    except ModuleNotFoundError:
        raise ValueError("McNemar's test needs the extra `eval`: pip install 'tirjudge[eval]'") from None
    return float(binomtest(gained, gained + lost).pvalue)


def _bootstrap(
    protocol: ScoringProtocol,
    runs: list[Units],
    names: list[str],
    seed: int | np.random.SeedSequence,
    resamples: int,
) -> list[dict[str, NDArray[np.float64]]]:
    """Compute figures of resamples, with the same draw for every run; none if units are not a random draw.

    The units of the runs must be aligned.
    """
    found: list[dict[str, list[float]]] = [{name: [] for name in names} for _ in runs]
    if not protocol.card.intervals:
        resamples = 0
    for sample in bootstrap_samples(runs, resamples, seed) if resamples else ():
        for units, kept in zip(sample, found, strict=True):
            figures = _values(protocol.figures(units))
            for name in names:
                # A resample may lack a figure, such as the kappa of a class that was not drawn.
                kept[name].append(figures.get(name, math.nan))
    return [{name: np.array(values) for name, values in kept.items()} for kept in found]


def _paired(first: Units, second: Units) -> tuple[Units, Units, tuple[str, ...], tuple[str, ...]]:
    """Return the units that both runs contain, in the order of the first, and the ids in only one of them.

    Raises Unscorable if there are none, or if one belongs to different sections.
    """
    if first.ids == second.ids:
        _check_sections(first, second)
        return first, second, (), ()
    places = second.ids.positions(first.ids)
    common = places >= 0
    if not common.any():
        raise Unscorable("the runs have no row in common")
    missed = np.ones(len(second.ids), dtype=bool)
    missed[places[common]] = False
    one, other = _taken(first, np.flatnonzero(common)), _taken(second, places[common])
    _check_sections(one, other)
    return one, other, _named(first, ~common), _named(second, missed)


def _named(units: Units, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(units.ids[int(place)] for place in np.flatnonzero(chosen))


def _taken(units: Units, taken: NDArray[np.intp]) -> Units:
    """Return the units at these places, in this order."""
    numbers = np.full(len(units.ids), -1, dtype=np.intp)
    numbers[taken] = np.arange(len(taken))
    sections = {name: numbers[positions] for name, positions in units.sections.items()}
    sections = {name: np.sort(positions[positions >= 0]) for name, positions in sections.items()}
    return Units(
        ids=RowIds(units.ids[int(place)] for place in taken),
        sections={name: positions for name, positions in sections.items() if len(positions)},
        values=units.values[taken],
    )


def _check_sections(one: Units, other: Units) -> None:
    """Raise Unscorable if a unit of two aligned runs belongs to different sections."""
    names = sorted({*one.sections, *other.sections})
    found = np.full((2, len(one.ids)), -1, dtype=np.intp)
    for run, row in zip((one, other), found, strict=True):
        for number, name in enumerate(names):
            row[run.sections.get(name, [])] = number
    different = np.flatnonzero(found[0] != found[1])
    if len(different):
        place = int(different[0])
        before, after = (names[row[place]] for row in found)
        raise Unscorable(
            f"row {one.ids[place]!r} belongs to {before!r} in the first run and to {after!r} in the second"
        )


def _discordant(one: Units, other: Units) -> tuple[int | None, int | None]:
    """Return (gained, lost), or (None, None) if some credit is neither 0 nor 1."""
    before, after = one.values[:, 0], other.values[:, 0]
    if not (np.isin(before, (0, 1)).all() and np.isin(after, (0, 1)).all()):
        return None, None
    return int((after > before).sum()), int((after < before).sum())


def _values(figures: Figures) -> dict[str, float]:
    return {
        name: figure.rate
        if isinstance(figure, Proportion)
        else figure.value
        if isinstance(figure, Statistic)
        else figure
        for name, figure in figures.items()
    }


def _sizes(figures: Figures, units: Units) -> dict[str, int | None]:
    """Return the n of every figure."""
    return {
        name: figure.n if isinstance(figure, Proportion | Statistic) else len(units.ids)
        for name, figure in figures.items()
    }


def _smaller(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def _of_draws(value: float, draws: NDArray[np.float64], n: int | None) -> Estimate:
    return Estimate(value, *central_interval(draws), n)
