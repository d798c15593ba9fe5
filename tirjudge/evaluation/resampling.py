"""Bootstrap samples of units, drawn within sections and independent of the order of the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.base import Units

_ROWS_PER_KIND = 32
"""Counting how often each kind of row is drawn is faster than drawing rows if a kind has this many rows."""

RESAMPLES = 1000
"""Samples behind an interval."""
_CENTRAL = (2.5, 97.5)
"""Percentiles that bound the central 95 %."""

Values = NDArray[np.float64]


def central_interval(draws: Values | Sequence[float]) -> tuple[float, float]:
    """Return the bounds of the central 95 % of the values in samples; nan without a value."""
    known = np.asarray(draws, dtype=np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.percentile(known, _CENTRAL)
    return float(low), float(high)


def bootstrap_samples(
    runs: Sequence[Units], resamples: int, seed: int | np.random.SeedSequence
) -> Iterator[list[Units]]:
    """Yield samples of the runs' units with replacement, with the same draw for every run.

    The units of the runs must be aligned. A sample has as many units of each section as the runs, and its
    ids are meaningless. Samples depend on the units but not on their order: the units of a section are drawn
    in the order of their ids. Equal units are counted together, because a million rows that are right or
    wrong need two numbers, not a million.
    """
    generator = np.random.default_rng(seed)
    strata = _strata(runs)
    size = sum(stratum.size for stratum in strata)
    sections, start = {}, 0
    for stratum in strata:
        sections[stratum.name] = np.arange(start, start + stratum.size)
        start += stratum.size
    widths = [run.values.shape[1] for run in runs]
    columns = [slice(end - width, end) for width, end in zip(widths, np.cumsum(widths), strict=True)]
    # One buffer for all samples: whoever keeps a sample's values must copy them.
    sample = np.empty((size, sum(widths)))
    for _ in range(resamples):
        start = 0
        for stratum in strata:
            stratum.draw(generator, sample[start : start + stratum.size])
            start += stratum.size
        yield [
            replace(run, values=sample[:, place], sections=sections)
            for run, place in zip(runs, columns, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class _Stratum:
    """A section's units."""

    name: str
    size: int
    kinds: Values
    """Array of shape (kinds, measures of all runs)."""
    shares: Values | None
    """Share of each kind; None if `kinds` are the units themselves."""

    def draw(self, generator: np.random.Generator, into: Values) -> None:
        """Fill an array of shape (size, measures) with a sample."""
        if self.shares is None:
            np.take(self.kinds, generator.integers(self.size, size=self.size), axis=0, out=into, mode="clip")
        else:
            into[:] = np.repeat(self.kinds, generator.multinomial(self.size, self.shares), axis=0)


def _strata(runs: Sequence[Units]) -> list[_Stratum]:
    first = runs[0]
    ranks = np.empty(len(first.ids), dtype=np.intp)
    ranks[first.ids.order()] = np.arange(len(first.ids))
    strata = []
    for name in sorted(first.sections):
        places = first.sections[name]
        places = places[np.argsort(ranks[places])]
        values = np.hstack([run.values[places] for run in runs])
        kinds, counts = _kinds(values)
        if len(kinds) * _ROWS_PER_KIND > len(values):
            strata.append(_Stratum(name, len(values), values, None))
        else:
            strata.append(_Stratum(name, len(values), kinds, counts / len(values)))
    return strata


def _kinds(values: Values) -> tuple[Values, NDArray[np.intp]]:
    """Return the distinct rows of an array, in order of their first occurrence, with their counts."""
    codes = np.zeros(len(values), dtype=np.intp)
    for column in values.T:
        distinct, inverse = np.unique(column, return_inverse=True)
        if len(distinct) * _ROWS_PER_KIND > len(values):
            return values, np.ones(len(values), dtype=np.intp)
        codes = np.unique(codes * len(distinct) + inverse, return_inverse=True)[1]
    _, places, counts = np.unique(codes, return_index=True, return_counts=True)
    order = np.argsort(places)
    return values[places[order]], counts[order]
