"""Estimators: numbers that know what each row adds to their error, and so their intervals.

An estimator has an influence: what each row adds to its error. Its variance is the sum of the squared
influences, or of their squared sums over clusters of rows that belong together (Liang and Zeger 1986).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tirjudge.statistics.clusters import (
    Z,
    cluster_codes,
    cluster_digest,
    clustered_variance,
    quantile,
    too_few,
)
from tirjudge.statistics.proportions import Proportion, wilson_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_ROWS = 10
"""A section with fewer rows gives no interval to the mean that it is part of."""
_PRIOR_CLUSTERS = 2
"""Clusters that as many informative clusters outweigh in an estimate of how alike rows of a cluster are."""
LEAST_OF_CLASS = 20
"""A class with fewer rows gives no interval to F1, kappa and other numbers of a table of classes."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A number without an influence, such as a published summary's: its interval, if any, is bootstrapped."""

    value: float
    n: int | None
    """Number of units behind it; None if a published summary does not state it."""
    fault: str = ""
    """Why it has no interval; empty if it is bootstrapped."""


@dataclass(frozen=True, slots=True, eq=False)
class Mean:
    """The mean of the credits of some units; with `trials`, the sum of credits divided by that of trials."""

    credits: NDArray[np.float64]
    """One for each unit in `places`."""
    trials: NDArray[np.float64] | None = None
    places: NDArray[np.intp] | None = None
    """Positions of the units; None for all of them."""
    counts_trials: bool = False
    """True if n is the number of trials, such as programs, and not that of units."""
    is_share: bool = True
    """False if credits may be outside of 0 and 1, or the mean may be, such as tokens for each verdict."""

    @property
    def value(self) -> float:
        """The mean; nan without trials."""
        total = len(self.credits) if self.trials is None else float(self.trials.sum())
        return float(self.credits.sum()) / total if total else math.nan

    @property
    def n(self) -> int:
        """Number of units, or of trials."""
        return int(self.trials.sum()) if self.counts_trials and self.trials is not None else len(self.credits)

    def per_trial(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return credits and trials in units of the mean number of trials, so that a unit has one trial."""
        import numpy as np

        trials = np.ones(len(self.credits)) if self.trials is None else self.trials
        scale = len(trials) / float(trials.sum())
        return self.credits * scale, trials * scale

    def influence(self, size: int) -> NDArray[np.float64]:
        """Return what each of `size` units adds to the error."""
        import numpy as np

        trials = np.ones(len(self.credits)) if self.trials is None else self.trials
        errors: NDArray[np.float64] = (self.credits - self.value * trials) / trials.sum()
        if self.places is None:
            return errors
        found = np.zeros(size)
        found[self.places] = errors
        return found

    def interval(self, size: int, clusters: NDArray[np.intp] | None = None) -> tuple[float, float]:
        """Return the 95 % interval, where `clusters` has the cluster of each of `size` units."""
        if not self.is_share:
            return normal_interval(self.value, self.influence(size), clusters)
        return self.proportion(clusters).interval if self.n else (math.nan, math.nan)

    def proportion(self, clusters: NDArray[np.intp] | None = None) -> Proportion:
        """Return the same share with its interval; the unit is the cluster, or else the row."""
        if clusters is None:
            return Proportion.of_rows(self.credits, self.trials)
        import numpy as np

        own = clusters if self.places is None else clusters[self.places]
        trials = np.ones(len(self.credits)) if self.trials is None else self.trials
        kinds, codes = np.unique(own, return_inverse=True)
        if len(kinds) == len(own):
            return Proportion.of_rows(self.credits, self.trials)
        right: NDArray[np.float64] = np.bincount(codes, weights=self.credits).astype(np.float64)
        total: NDArray[np.float64] = np.bincount(codes, weights=trials).astype(np.float64)
        # One right and one wrong unit are added, as in `of_rows`, so that no variance is 0: first rows, which
        # give a design effect, and then units of as many rows as that effect. Where few clusters have errors,
        # or successes, the effect is hardly known, and the mean size of a cluster takes its place.
        size = float(total.sum()) / len(kinds)
        informative = min((right > 0).sum(), (right < total).sum())
        known = min(size, max(1.0, _design_effect(right, total, 1.0)))
        added = (informative * known + _PRIOR_CLUSTERS * size) / (informative + _PRIOR_CLUSTERS)
        effective = float(total.sum()) / _design_effect(right, total, added)
        return Proportion(float(right.sum()), int(total.sum()), effective, clusters=len(kinds))


def _design_effect(right: NDArray[np.float64], total: NDArray[np.float64], added: float) -> float:
    """Return how many times the variance of a rate is that of independent rows.

    `right` and `total` count the rows of each cluster, and `added` right and as many wrong rows join them.
    """
    rate = float(right.sum() + added) / float(total.sum() + 2 * added)
    errors = float(((right - rate * total) ** 2).sum()) * len(total) / max(1, len(total) - 1)
    errors += added**2 * ((1 - rate) ** 2 + rate**2)
    return errors / (float(total.sum() + 2 * added) * rate * (1 - rate))


@dataclass(frozen=True, slots=True, eq=False)
class SectionMean:
    """The weighted mean of the means of sections, which are drawn apart from each other."""

    parts: Sequence[Mean]
    weights: Sequence[float] | None = None
    """None for equal weights."""

    @property
    def shares(self) -> list[float]:
        """The weights, which add up to 1."""
        given = [1.0] * len(self.parts) if self.weights is None else self.weights
        return [one / sum(given) for one in given]

    @property
    def value(self) -> float:
        return sum(share * one.value for share, one in zip(self.shares, self.parts, strict=True))

    @property
    def n(self) -> int:
        return sum(one.n for one in self.parts)

    @property
    def fault(self) -> str:
        """Why the mean has no interval; empty if it has one."""
        small = sum(len(one.credits) < LEAST_ROWS for one in self.parts)
        return f"{small} of {len(self.parts)} sections have fewer than {LEAST_ROWS} rows" if small else ""

    def influence(self, size: int) -> NDArray[np.float64]:
        import numpy as np

        found = np.zeros(size)
        for share, part in zip(self.shares, self.parts, strict=True):
            rows = len(part.credits)
            # Bessel's correction, of each section by itself, since sections are drawn apart.
            found += share * part.influence(size) * math.sqrt(rows / max(1, rows - 1))
        return found

    def interval(self, size: int, clusters: NDArray[np.intp] | None = None) -> tuple[float, float]:
        """Return Wilson's interval with the number of rows that would vary as much (Dean and Pagano 2015).

        The variance of a section's credits is smoothed by two rows with the rate of all sections, so that a
        section without an error does not count as certain.
        """
        if math.isnan(self.value):
            return math.nan, math.nan
        parts = [part.per_trial() for part in self.parts]
        rows = sum(len(credits) for credits, _ in parts)
        rate = (sum(float(credits.sum()) for credits, _ in parts) + 1) / (rows + 2)
        variance = 0.0
        for share, (credits, trials) in zip(self.shares, parts, strict=True):
            n = len(credits)
            own = (float(credits.sum()) + 2 * rate) / (n + 2)
            errors = float(((credits - own * trials) ** 2).sum())
            errors += 2 * rate * (1 - own) ** 2 + 2 * (1 - rate) * own**2
            variance += share**2 * errors / (n + 2) / n
        z = Z
        if clusters is not None:
            found = self.influence(size)
            alone = float(found @ found)
            together, count = clustered_variance(found, clusters)
            z = quantile(count)
            # The smoothed variance grows as much as clusters raise the variance that is not smoothed.
            variance *= together / alone if alone else 1.0
        if self.fault or not variance or too_few(None if clusters is None else count):
            return math.nan, math.nan
        effective = rate * (1 - rate) / variance
        return wilson_interval(min(1.0, self.value) * effective, effective, z)


@dataclass(frozen=True, slots=True, eq=False)
class OfTable:
    """A function of the table that counts pairs of classes, such as F1 or kappa (the delta method)."""

    function: Callable[[NDArray[np.float64]], float]
    """Takes an array `[classes, classes]` of counts or of shares."""
    table: NDArray[np.float64]
    """Number of units with each pair of classes."""
    codes: NDArray[np.intp]
    """The cell of each unit, in the flattened table."""

    @property
    def value(self) -> float:
        return self.function(self.table)

    @property
    def n(self) -> int:
        return len(self.codes)

    @property
    def fault(self) -> str:
        """Why the number has no interval; empty if it has one."""
        totals = [self.table.sum(axis=axis) for axis in (0, 1)]
        least = min(int(one[one > 0].min()) if one.any() else 0 for one in totals)
        if min(map(int, [(one > 0).sum() for one in totals])) < 2:
            return "a rater names only one class"
        return f"a class has fewer than {LEAST_OF_CLASS} rows" if least < LEAST_OF_CLASS else ""

    def influence(self, size: int) -> NDArray[np.float64]:
        import numpy as np

        shares = self.table / self.n
        slopes = np.zeros(shares.size)
        for cell in np.flatnonzero(shares):
            step = 1e-4 * float(shares.flat[cell])
            more, less = shares.copy(), shares.copy()
            more.flat[cell] += step
            less.flat[cell] -= step
            slopes[cell] = (self.function(more) - self.function(less)) / (2 * step)
        found: NDArray[np.float64] = slopes[self.codes] / self.n
        return found

    def interval(self, size: int, clusters: NDArray[np.intp] | None = None) -> tuple[float, float]:
        if self.fault:
            return math.nan, math.nan
        return normal_interval(self.value, self.influence(size), clusters)


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A share or a correlation by a model or a table, with what each unit adds to its error."""

    value: float
    """nan if the model has no finite fit."""
    n: int
    errors: NDArray[np.float64]
    """What each unit adds to the error of the value."""
    fault: str = ""
    """Why the number has no interval; empty if it has one."""
    is_correlation: bool = False
    """True for a number from -1 to 1, False for one from 0 to 1."""

    def influence(self, size: int) -> NDArray[np.float64]:
        return self.errors

    def interval(self, size: int, clusters: NDArray[np.intp] | None = None) -> tuple[float, float]:
        """Return the 95 % interval, which is that of the log-odds of the share.

        For a correlation it is that of Fisher's transformation, the log-odds of (1 + value) / 2.
        """
        share = (1 + self.value) / 2 if self.is_correlation else self.value
        scale = share * (1 - share) * (2 if self.is_correlation else 1)
        if self.fault or not scale > 0:
            return math.nan, math.nan
        bounds = normal_interval(math.log(share / (1 - share)), self.errors / scale, clusters)
        low, high = (1 / (1 + math.exp(-bound)) for bound in bounds)
        return (2 * low - 1, 2 * high - 1) if self.is_correlation else (low, high)


Estimator = Mean | SectionMean | OfTable | Fitted


def normal_interval(
    value: float, influence: NDArray[np.float64], clusters: NDArray[np.intp] | None = None
) -> tuple[float, float]:
    """Return value plus and minus the quantile times the standard error; nan for a row or few clusters."""
    variance, count = clustered_variance(influence, clusters)
    if too_few(count) or len(influence) < 2:
        return math.nan, math.nan
    spread = quantile(count) * math.sqrt(variance)
    return value - spread, value + spread


@dataclass(slots=True)
class Credits:
    """The credits of rows that are read one by one, with 16 bytes for each row."""

    total: float = 0.0
    """Sum of the credits."""
    _credits: array[float] = field(default_factory=lambda: array("d"))
    _clusters: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, credit: float, cluster: str = "") -> None:
        """Add a row with a credit from 0 to 1; rows with the same `cluster` depend on each other."""
        self.total += credit
        self._credits.append(credit)
        self._clusters.append(cluster_digest(cluster))

    def __len__(self) -> int:
        return len(self._credits)

    @property
    def mean(self) -> Proportion:
        """The mean credit, with the interval of the protocol `verdict`; n = 0 without rows."""
        import numpy as np

        return Mean(np.array(self._credits)).proportion(cluster_codes(self._clusters))
