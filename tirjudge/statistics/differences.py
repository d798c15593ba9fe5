"""Differences of two estimators, paired or not, and what keeps a number from having an interval."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tirjudge.statistics.clusters import LEAST_CLUSTERS, clustered_variance, quantile
from tirjudge.statistics.estimators import Estimator, Fitted, Mean, OfTable, SectionMean, Statistic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POWER = 0.8416212335729143
"""The quantile of the normal distribution behind a power of 80 %."""


def fault_of(*figures: object, clusters: NDArray[np.intp] | None = None) -> str:
    """Return why a number, or the difference of several, has no interval; empty if it has one."""
    kinds = SectionMean | OfTable | Fitted | Statistic
    fault = next((one.fault for one in figures if isinstance(one, kinds) and one.fault), "")
    if fault or clusters is None:
        return fault
    import numpy as np

    places = [one.places for one in figures if isinstance(one, Mean) and one.places is not None]
    owned = [clusters[own] for own in places] or [clusters]
    counts = [(len(np.unique(own)), len(own)) for own in owned]
    few = any(kinds < min(LEAST_CLUSTERS, rows) for kinds, rows in counts)
    return f"fewer than {LEAST_CLUSTERS} clusters of rows" if few else ""


def difference_interval(
    first: Estimator, second: Estimator, size: int, clusters: NDArray[np.intp] | None = None
) -> tuple[float, float]:
    """Return the 95 % interval of second minus first over the same `size` units.

    For shares one half is added to each of the four kinds of pairs, as in `paired_difference`; with clusters
    whole pairs of clusters of the mean size are added.
    """
    centre, error, count = _difference(first, second, size, clusters)
    if math.isnan(error):
        return math.nan, math.nan
    spread = quantile(count) * error
    if _is_unbounded(first):
        return centre - spread, centre + spread
    return max(-1.0, centre - spread), min(1.0, centre + spread)


def detectable_difference(
    first: Estimator, second: Estimator, size: int, clusters: NDArray[np.intp] | None = None
) -> float:
    """Return the true difference that a two-sided test at 5 % would find with a power of 80 %.

    The standard error is that of `difference_interval`; nan without one.
    """
    _, error, count = _difference(first, second, size, clusters)
    return (quantile(count) + _POWER) * error


def _is_unbounded(figure: Estimator) -> bool:
    return isinstance(figure, OfTable | Fitted) or (isinstance(figure, Mean) and not figure.is_share)


def _difference(
    first: Estimator, second: Estimator, size: int, clusters: NDArray[np.intp] | None
) -> tuple[float, float, int | None]:
    """Return the centre of the interval of a difference, its standard error, and the number of clusters."""
    value = second.value - first.value
    if fault_of(first, second, clusters=clusters):
        return value, math.nan, None
    errors = second.influence(size) - first.influence(size)
    variance, count = clustered_variance(errors, clusters)
    if _is_unbounded(first):
        known = errors.any() and (count is not None or size > 1)
        return value, math.sqrt(variance) if known else math.nan, count
    n = min(first.n, second.n) if count is None else count
    shrunk = n / (n + 2)
    centre = value * shrunk
    # Two pairs are added: half a gain, half a loss and one without a change.
    variance = variance * shrunk**2 + (n * (value - centre) ** 2 + 1 + 2 * centre**2) / (n + 2) ** 2
    return centre, math.sqrt(variance), count


def unpaired_interval(first: Estimator, second: Estimator, sizes: tuple[int, int]) -> tuple[float, float]:
    """Return the 95 % interval of second minus first, over independent rows (Newcombe 1998, method 10)."""
    bounds = [one.interval(size) for one, size in zip((first, second), sizes, strict=True)]
    (low, high), (least, most) = bounds
    value = second.value - first.value
    down = math.hypot(second.value - least, high - first.value)
    up = math.hypot(most - second.value, first.value - low)
    return value - down, value + up
