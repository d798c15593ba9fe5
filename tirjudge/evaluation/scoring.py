"""Scores of a run under a protocol with their intervals, and paired comparisons of two runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.base import Figures, JudgedRow, ProtocolCard, ScoringProtocol, Units, Unscorable
from tirjudge.statistics import Proportion

RESAMPLES = 1000
_CENTRAL = (2.5, 97.5)
"""Percentiles that bound the central 95 %."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval: Wilson's for a proportion, otherwise bootstrap percentiles."""

    value: float
    low: float
    high: float
    n: int | None = None
    """Denominator of a proportion; None for other numbers."""


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
    """Two runs under one protocol, over the units that both contain."""

    card: ProtocolCard
    differences: Mapping[str, Estimate]
    """Second minus first, with the interval of a paired bootstrap."""
    first: Mapping[str, float]
    second: Mapping[str, float]
    common: int
    left_out: int
    """Units that only one of the runs contains."""
    gained: int | None
    """Units that only the second run got right; None if units are not simply right or wrong."""
    lost: int | None
    """Units that only the first run got right; None like `gained`."""
    p_value: float | None
    """McNemar's exact two-sided test of gained against lost (McNemar 1947); None like `gained`."""


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
    draws = resamples if floats and protocol.card.intervals else 0
    drawn = _bootstrap(protocol, [units], floats, seed, draws)[0]
    estimates = {
        name: _of_proportion(figure) if isinstance(figure, Proportion) else _of_draws(figure, drawn[name])
        for name, figure in figures.items()
    }
    return Score(protocol.card, estimates, units)


def compare(
    protocol: ScoringProtocol, first: Units, second: Units, *, seed: int = 0, resamples: int = RESAMPLES
) -> Comparison:
    """Compare the units of two runs over the same rows. Raises Unscorable if they have no row in common."""
    one, other = _paired(first, second)
    figures = [_values(protocol.figures(units)) for units in (one, other)]
    names = [name for name in figures[0] if name in figures[1]]
    drawn = _bootstrap(protocol, [one, other], names, seed, resamples)
    gained, lost = _discordant(one, other)
    return Comparison(
        card=protocol.card,
        differences={
            name: _of_draws(figures[1][name] - figures[0][name], drawn[1][name] - drawn[0][name])
            for name in names
        },
        first=figures[0],
        second=figures[1],
        common=len(one.ids),
        left_out=len(first.ids) + len(second.ids) - 2 * len(one.ids),
        gained=gained,
        lost=lost,
        p_value=None if gained is None or lost is None else mcnemar(gained, lost),
    )


def mcnemar(gained: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test for these discordant pairs (McNemar 1947)."""
    flips, fewer = gained + lost, min(gained, lost)
    tail = sum(math.comb(flips, k) for k in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**flips))


def _bootstrap(
    protocol: ScoringProtocol, runs: list[Units], names: list[str], seed: int, resamples: int
) -> list[dict[str, NDArray[np.float64]]]:
    """Compute figures of resamples within sections, with the same draw for every run.

    The units of the runs must be aligned.
    """
    generator = np.random.default_rng(seed)
    found: list[dict[str, list[float]]] = [{name: [] for name in names} for _ in runs]
    places = list(runs[0].sections.values())
    draw = np.empty(len(runs[0].ids), dtype=np.intp)
    for _ in range(resamples):
        for positions in places:
            draw[positions] = positions[generator.integers(len(positions), size=len(positions))]
        for units, kept in zip(runs, found, strict=True):
            figures = _values(protocol.figures(replace(units, values=units.values[draw])))
            for name in names:
                # A resample may lack a figure, such as the kappa of a class that was not drawn.
                kept[name].append(figures.get(name, math.nan))
    return [{name: np.array(values) for name, values in kept.items()} for kept in found]


def _paired(first: Units, second: Units) -> tuple[Units, Units]:
    """Return the units that both runs contain, in the order and sections of the first."""
    places = {id: place for place, id in enumerate(second.ids)}
    common = [place for place, id in enumerate(first.ids) if id in places]
    if not common:
        raise Unscorable("the runs have no row in common")
    renumbered = {place: number for number, place in enumerate(common)}
    sections = {
        name: np.array([renumbered[place] for place in positions if place in renumbered], dtype=np.intp)
        for name, positions in first.sections.items()
    }
    ids = tuple(first.ids[place] for place in common)
    kept = {name: positions for name, positions in sections.items() if len(positions)}
    of_second = [places[id] for id in ids]
    return (
        Units(ids=ids, sections=kept, values=first.values[common]),
        Units(ids=ids, sections=kept, values=second.values[of_second]),
    )


def _discordant(one: Units, other: Units) -> tuple[int | None, int | None]:
    """Return (gained, lost), or (None, None) if some credit is neither 0 nor 1."""
    before, after = one.values[:, 0], other.values[:, 0]
    if not (np.isin(before, (0, 1)).all() and np.isin(after, (0, 1)).all()):
        return None, None
    return int((after > before).sum()), int((after < before).sum())


def _values(figures: Figures) -> dict[str, float]:
    return {
        name: figure.rate if isinstance(figure, Proportion) else figure for name, figure in figures.items()
    }


def _of_proportion(figure: Proportion) -> Estimate:
    return Estimate(figure.rate, *figure.interval, n=figure.n)


def _of_draws(value: float, draws: NDArray[np.float64]) -> Estimate:
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return Estimate(value, math.nan, math.nan)
    low, high = np.percentile(draws, _CENTRAL)
    return Estimate(value, float(low), float(high))
