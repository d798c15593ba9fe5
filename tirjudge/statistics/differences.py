"""Differences of two estimators, paired or not, and what keeps a number from having an interval."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tirjudge.statistics.clusters import clustered_variance, fault_of_clusters, quantile
from tirjudge.statistics.estimators import Estimator, Fitted, Mean, OfTable, SectionMean, Statistic
from tirjudge.statistics.proportions import added_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POWER = 0.8416212335729143
"""The quantile of the normal distribution behind a power of 80 %."""


def fault_of(*figures: object, clusters: NDArray[np.intp] | None = None) -> str:
    """Return why a number, or the difference of several, has no interval; empty if it has one."""
    kinds = Mean | SectionMean | OfTable | Fitted | Statistic
    fault = next((one.fault for one in figures if isinstance(one, kinds) and one.fault), "")
    if fault or clusters is None:
        return fault
    return next(filter(None, (_fault_of_clusters(one, clusters) for one in figures)), "")


def _fault_of_clusters(figure: object, clusters: NDArray[np.intp]) -> str:
    import numpy as np

    weights = figure.unit_weights(len(clusters)) if isinstance(figure, Estimator) else np.ones(len(clusters))
    counted = weights > 0
    # Rows of which no two share a cluster are independent, and may be few.
    if not counted.any() or int(np.bincount(clusters[counted]).max()) < 2:
        return ""
    spread = clustered_variance(np.zeros(len(clusters)), clusters, weights)
    return fault_of_clusters(spread.clusters or 0, spread.effective or 0.0)


def difference_interval(
    first: Estimator, second: Estimator, size: int, clusters: NDArray[np.intp] | None = None
) -> tuple[float, float]:
    """Return the 95 % interval of second minus first over the same `size` units.

    For shares one half is added to each of the four kinds of pairs, as in `paired_difference`; with clusters
    a pair has as many rows as their design effect, see `added_rows`.
    """
    centre, error, units = _difference(first, second, size, clusters)
    if math.isnan(error):
        return math.nan, math.nan
    spread = quantile(units) * error
    if _is_unbounded(first):
        return centre - spread, centre + spread
    return max(-1.0, centre - spread), min(1.0, centre + spread)


def detectable_difference(
    first: Estimator, second: Estimator, size: int, clusters: NDArray[np.intp] | None = None
) -> float:
    """Return the true difference that a two-sided test at 5 % would find with a power of 80 %.

    The standard error is that of `difference_interval`; nan without one.
    """
    _, error, units = _difference(first, second, size, clusters)
    return (quantile(units) + _POWER) * error


def _is_unbounded(figure: Estimator) -> bool:
    return isinstance(figure, OfTable | Fitted) or (isinstance(figure, Mean) and not figure.is_share)


def _difference(
    first: Estimator, second: Estimator, size: int, clusters: NDArray[np.intp] | None
) -> tuple[float, float, float | None]:
    """Return the centre of the interval, the standard error, and the number of units behind the quantile.

    Units are effective clusters, or the rows of means that are no shares; None for the normal quantile.
    """
    value = second.value - first.value
    if math.isnan(value) or fault_of(first, second, clusters=clusters):
        return value, math.nan, None
    errors = second.influence(size, clusters) - first.influence(size, clusters)
    weights = _weights(first, second, size)
    spread = clustered_variance(errors, clusters, weights)
    units = spread.effective
    if isinstance(first, Mean) and not first.is_share and units is None:
        units = min(len(one.credits) for one in (first, second) if isinstance(one, Mean))
        if units < 2 or not errors.any():
            return value, math.nan, None
        return value, spread.error * math.sqrt(units / (units - 1)), units
    if _is_unbounded(first):
        known = errors.any() and (units is not None or size > 1)
        return value, spread.error if known else math.nan, units
    n = min(first.n, second.n) if clusters is None else _units(errors, clusters, weights)
    shrunk = n / (n + 2)
    centre = value * shrunk
    # Two pairs are added: half a gain, half a loss and one without a change.
    variance = spread.variance * shrunk**2 + (n * (value - centre) ** 2 + 1 + 2 * centre**2) / (n + 2) ** 2
    return centre, math.sqrt(variance), units


def _units(errors: NDArray[np.float64], clusters: NDArray[np.intp], weights: NDArray[np.float64]) -> float:
    """Return the number of units, of which two are added; see `added_rows`."""
    counted = weights > 0
    return int(counted.sum()) / added_rows(errors[counted], clusters[counted])


def _weights(first: Estimator, second: Estimator, size: int) -> NDArray[np.float64]:
    """Return how much each unit counts in both numbers together."""
    import numpy as np

    found = np.zeros(size)
    for figure in (first, second):
        weights = figure.unit_weights(size)
        if weights.any():
            found += weights / weights.sum()
    return found


def unpaired_interval(
    first: Estimator,
    second: Estimator,
    sizes: tuple[int, int],
    clusters: tuple[NDArray[np.intp] | None, NDArray[np.intp] | None] = (None, None),
) -> tuple[float, float]:
    """Return the 95 % interval of second minus first, of independent runs (Newcombe 1998, method 10).

    `sizes` and `clusters` are those of the units of each run.
    """
    runs = zip((first, second), sizes, clusters, strict=True)
    bounds = [one.interval(size, own) for one, size, own in runs]
    (low, high), (least, most) = bounds
    value = second.value - first.value
    down = math.hypot(second.value - least, high - first.value)
    up = math.hypot(most - second.value, first.value - low)
    return value - down, value + up
