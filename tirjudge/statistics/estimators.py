"""Estimators: numbers that know what each row adds to their error, and so their intervals.

An estimator has an influence: what each row adds to its error. Its variance is the sum of the squared
influences. Where rows belong together, it is that of the jackknife, which leaves out one cluster at a time,
and Student's t has the effective number of clusters minus 1 degrees of freedom.
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
    effective_clusters,
    left_out,
    quantile,
    rows_of_unit,
    too_few,
)
from tirjudge.statistics.proportions import Proportion, added_rows, wilson_interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_ROWS = 10
"""A section with fewer rows gives no interval to the mean that it is part of."""
_ROUNDING = 1e-12
"""Errors below this share of the mean are those of rounding."""
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

    @property
    def fault(self) -> str:
        """Why the mean has no interval; empty if it has one. A share of few rows always has one."""
        if self.is_share or math.isnan(self.value):
            return ""
        if len(self.credits) < 2:
            return "fewer than 2 rows"
        total = len(self.credits) if self.trials is None else float(self.trials.sum())
        # The mean of many equal numbers may differ from them by a rounding error.
        least = _ROUNDING * float(abs(self.credits).max()) / max(total, 1.0)
        return "" if (abs(self._errors(None)) > least).any() else "the values do not vary"

    def unit_weights(self, size: int) -> NDArray[np.float64]:
        """Return how much each of `size` units counts: its trials, 1 without trials, 0 if it is left out."""
        import numpy as np

        trials = np.ones(len(self.credits)) if self.trials is None else self.trials
        return trials if self.places is None else _placed(trials, self.places, size)

    def influence(self, size: int, clusters: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return what each of `size` units adds to the error, with `left_out` for the units' clusters."""
        errors = self._errors(clusters)
        return errors if self.places is None else _placed(errors, self.places, size)

    def _errors(self, clusters: NDArray[np.intp] | None) -> NDArray[np.float64]:
        import numpy as np

        trials = np.ones(len(self.credits)) if self.trials is None else self.trials
        errors: NDArray[np.float64] = (self.credits - self.value * trials) / trials.sum()
        return errors if clusters is None else errors * left_out(self._own(clusters), trials)

    def _own(self, clusters: NDArray[np.intp]) -> NDArray[np.intp]:
        return clusters if self.places is None else clusters[self.places]

    def interval(self, size: int, clusters: NDArray[np.intp] | None = None) -> tuple[float, float]:
        """Return the 95 % interval, where `clusters` has the cluster of each of `size` units.

        For a share it is Wilson's, and otherwise Student's.
        """
        if self.is_share:
            return self.proportion(clusters).interval if self.n else (math.nan, math.nan)
        own = None if clusters is None else self._own(clusters)
        if self.fault or math.isnan(self.value):
            return math.nan, math.nan
        if own is None or _alone(own):
            errors = self._errors(None)
            spread = quantile(len(errors)) * math.sqrt(
                float(errors @ errors) * len(errors) / (len(errors) - 1)
            )
            return self.value - spread, self.value + spread
        return normal_interval(self.value, self._errors(clusters), own, self.trials)

    def proportion(self, clusters: NDArray[np.intp] | None = None) -> Proportion:
        """Return the same share with its interval; the unit is the cluster, or else the row."""
        if clusters is None or _alone(self._own(clusters)):
            return Proportion.of_rows(self.credits, self.trials)
        import numpy as np

        own = self._own(clusters)
        trials = np.ones(len(self.credits)) if self.trials is None else self.trials
        codes = np.unique(own, return_inverse=True)[1]
        right: NDArray[np.float64] = np.bincount(codes, weights=self.credits).astype(np.float64)
        total: NDArray[np.float64] = np.bincount(codes, weights=trials).astype(np.float64)
        count = effective_clusters(own, trials)
        # One right and one wrong unit are added, as in `of_rows`, so that no variance is 0: first rows, which
        # give a design effect, and then units of as many rows as that effect.
        informative = min(_effective(total[right > 0]), _effective(total[right < total]))
        effect, rows = _design_effect(right, total, 1.0), float(total.sum())
        added = rows_of_unit(effect, informative, len(total), count, rows)
        effective = rows / _design_effect(right, total, added)
        return Proportion(
            float(right.sum()), int(total.sum()), effective, clusters=len(total), effective_clusters=count
        )


def _placed(values: NDArray[np.float64], places: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    import numpy as np

    found = np.zeros(size)
    found[places] = values
    return found


def _alone(clusters: NDArray[np.intp]) -> bool:
    """Return True if no two rows share a cluster."""
    import numpy as np

    return not len(clusters) or int(np.bincount(clusters).max()) < 2


def _effective(weights: NDArray[np.float64]) -> float:
    """Return the number of clusters of equal weight that average as much (Kish 1965)."""
    return float(weights.sum()) ** 2 / max(float(weights @ weights), math.ulp(0.0))


def _design_effect(right: NDArray[np.float64], total: NDArray[np.float64], added: float) -> float:
    """Return how many times the variance of a rate is that of independent rows.

    `right` and `total` count the rows of each cluster, and `added` right and as many wrong rows join them.
    The variance is that of the jackknife by cluster.
    """
    import numpy as np

    rate = float(right.sum() + added) / float(total.sum() + 2 * added)
    rest = np.maximum(1 - total / total.sum(), 1 / (1 + len(total)))
    errors = float((((right - rate * total) / rest) ** 2).sum()) * max(1, len(total) - 1) / len(total)
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

    def unit_weights(self, size: int) -> NDArray[np.float64]:
        """Return how much each of `size` units counts: the weight of its section, divided by its trials."""
        import numpy as np

        found = np.zeros(size)
        for share, part in zip(self.shares, self.parts, strict=True):
            trials = part.unit_weights(size)
            found += share * trials / max(float(trials.sum()), math.ulp(0.0))
        return found

    def influence(self, size: int, clusters: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        import numpy as np

        found = np.zeros(size)
        every = 1.0 if clusters is None else _bessel(_number(clusters))
        for share, part in zip(self.shares, self.parts, strict=True):
            # Bessel's correction, of each section by itself, since sections are drawn apart.
            if clusters is None:
                factor = _bessel(len(part.credits))
            else:
                own = clusters if part.places is None else clusters[part.places]
                factor = every / _bessel(_number(own))
            found += share * part.influence(size, clusters) * factor
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
            spread = clustered_variance(self.influence(size, clusters), clusters, self.unit_weights(size))
            z = spread.quantile
            # The smoothed variance grows as much as clusters raise the variance that is not smoothed.
            variance *= spread.variance / alone if alone else 1.0
        if self.fault or not variance or (clusters is not None and too_few(spread.effective)):
            return math.nan, math.nan
        effective = rate * (1 - rate) / variance
        return wilson_interval(min(1.0, self.value) * effective, effective, z)


def _number(clusters: NDArray[np.intp]) -> int:
    import numpy as np

    return int((np.bincount(clusters) > 0).sum())


def _bessel(count: int) -> float:
    return math.sqrt(count / max(1, count - 1))


@dataclass(frozen=True, slots=True, eq=False)
class OfTable:
    """A function of the table that counts pairs of classes, such as F1 or kappa (the delta method).

    The interval is Wilson's, of the share that the number comes from: for kappa the share of equal classes,
    which is the one by chance where kappa is 0.
    """

    function: Callable[[NDArray[np.float64]], float]
    """Takes an array `[classes, classes]` of counts or of shares."""
    table: NDArray[np.float64]
    """Number of units with each pair of classes."""
    codes: NDArray[np.intp]
    """The cell of each unit, in the flattened table."""
    by_chance: float = 0.0
    """The share for which the number is 0, such as agreement by chance. For a share of 1 the number is 1."""

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

    def unit_weights(self, size: int) -> NDArray[np.float64]:
        import numpy as np

        return np.ones(size)

    def influence(self, size: int, clusters: NDArray[np.intp] | None = None) -> NDArray[np.float64]:

        found: NDArray[np.float64] = self._slopes(self.table)[self.codes] / self.n
        return found if clusters is None else found * left_out(clusters)

    def among(self, places: NDArray[np.intp], size: int) -> Fitted:
        """Return the same number as one of the units at these places among `size` units."""
        errors = _placed(self.influence(len(self.codes)), places, size)
        fault = self.fault or ("" if errors.any() else "no row departs from a perfect agreement")
        return Fitted(self.value, self.n, errors, fault, by_chance=self.by_chance)

    def _slopes(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivatives of the number by the shares of the cells."""
        import numpy as np

        shares = table / table.sum()
        slopes = np.zeros(shares.size)
        for cell in np.flatnonzero(shares):
            step = 1e-4 * float(shares.flat[cell])
            more, less = shares.copy(), shares.copy()
            more.flat[cell] += step
            less.flat[cell] -= step
            slopes[cell] = (self.function(more) - self.function(less)) / (2 * step)
        return slopes

    def interval(self, size: int, clusters: NDArray[np.intp] | None = None) -> tuple[float, float]:
        """Return the 95 % interval.

        Two units whose classes are as if by chance are added to the table, so that no variance is 0.
        """
        import numpy as np

        if self.fault or math.isnan(self.value):
            return math.nan, math.nan
        added = added_rows(self.influence(size, clusters), clusters)
        chance = np.outer(self.table.sum(axis=1), self.table.sum(axis=0)) / self.n**2
        table = self.table + 2 * added * chance
        slopes = self._slopes(table)
        slopes -= float(slopes @ table.ravel()) / float(table.sum())
        errors = slopes[self.codes]
        spread = clustered_variance(errors if clusters is None else errors * left_out(clusters), clusters)
        if too_few(spread.effective):
            return math.nan, math.nan
        variance = spread.variance + 2 * added**2 * float(chance.ravel() @ slopes**2)
        scale = 1 - self.by_chance
        smoothed = self.by_chance + self.function(table) * scale
        effective = smoothed * (1 - smoothed) * float(table.sum()) ** 2 / (variance * scale**2)
        share = min(1.0, max(0.0, self.by_chance + self.value * scale))
        low, high = wilson_interval(share * effective, effective, spread.quantile)
        return (low - self.by_chance) / scale, (high - self.by_chance) / scale


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
    by_chance: float | None = None
    """The share of equal classes for which the number is 0; None for a number that is not made of a share."""

    def unit_weights(self, size: int) -> NDArray[np.float64]:
        """Return 1 for each unit that the number comes from, and 0 for the others."""
        found: NDArray[np.float64] = (self.errors != 0).astype(float)
        return found

    def influence(self, size: int, clusters: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        return self.errors if clusters is None else self.errors * left_out(clusters, self.unit_weights(size))

    def interval(self, size: int, clusters: NDArray[np.intp] | None = None) -> tuple[float, float]:
        """Return the 95 % interval, which is that of the log-odds of the share.

        For a correlation it is that of Fisher's transformation, the log-odds of (1 + value) / 2. For a number
        with `by_chance` it is Wilson's, as for an `OfTable`.
        """
        if self.by_chance is not None and not self.fault:
            return self._of_share(self.by_chance, size, clusters)
        share = (1 + self.value) / 2 if self.is_correlation else self.value
        scale = share * (1 - share) * (2 if self.is_correlation else 1)
        if self.fault or not scale > 0:
            return math.nan, math.nan
        errors = self.influence(size, clusters) / scale
        bounds = normal_interval(math.log(share / (1 - share)), errors, clusters, self.unit_weights(size))
        low, high = (1 / (1 + math.exp(-bound)) for bound in bounds)
        return (2 * low - 1, 2 * high - 1) if self.is_correlation else (low, high)

    def _of_share(self, chance: float, size: int, clusters: NDArray[np.intp] | None) -> tuple[float, float]:
        counted = self.unit_weights(size) > 0
        own, scale = None if clusters is None else clusters[counted], 1 - chance
        own = None if own is None or _alone(own) else own
        errors = self.influence(size, clusters)[counted] * scale
        low, high = Proportion.of_influence(chance + self.value * scale, errors, own).interval
        return (low - chance) / scale, (high - chance) / scale


Estimator = Mean | SectionMean | OfTable | Fitted


def normal_interval(
    value: float,
    influence: NDArray[np.float64],
    clusters: NDArray[np.intp] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> tuple[float, float]:
    """Return value plus and minus the quantile times the standard error; nan for a row or few clusters.

    With clusters, `influence` has the factor `left_out`, and `weights` are those of `clustered_variance`.
    """
    spread = clustered_variance(influence, clusters, weights)
    if too_few(spread.effective) or len(influence) < 2:
        return math.nan, math.nan
    half = spread.quantile * spread.error
    return value - half, value + half


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
    def halves(self) -> tuple[Credits, Credits]:
        """The rows of the first half, in the order in which they were added, and the others."""
        half = len(self) // 2
        first, second = (
            Credits(sum(self._credits[part]), self._credits[part], self._clusters[part])
            for part in (slice(half), slice(half, None))
        )
        return first, second

    @property
    def mean(self) -> Proportion:
        """The mean credit, with the interval of the protocol `verdict`; n = 0 without rows."""
        import numpy as np

        return Mean(np.array(self._credits)).proportion(cluster_codes(self._clusters))
