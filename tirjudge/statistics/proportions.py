"""Shares of rows with Wilson's interval, and changes of shares over pairs of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tirjudge.statistics.clusters import (
    Z,
    clustered_variance,
    effective_clusters,
    fault_of_clusters,
    in_clusters,
    quantile,
    rows_of_unit,
    too_few,
)
from tirjudge.statistics.printed import estimated

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Proportion:
    """Successes out of n trials; `str` gives `73.2% [65.9%, 79.4%], n = 164`."""

    successes: float
    """May be fractional, for ties that count one half."""
    n: int
    effective: float | None = None
    """Number of independent successes or failures whose rate would vary as much as this one; None for n."""
    clusters: int | None = None
    """Number of clusters of rows that depend on each other; None if rows are independent."""
    effective_clusters: float | None = None
    """Number of clusters of equal size that average as much; None if all have the same size."""

    @classmethod
    def of_rows(cls, credits: NDArray[np.float64], votes: NDArray[np.float64] | None = None) -> Proportion:
        """Return the mean of the rows' credits, each from 0 to 1, with rows as the independent trials.

        With `votes`, the number of votes on each row, `credits` counts the right ones among them, and the
        rate is their share of all votes. n is the number of rows; 0 if there are no votes. The interval is
        Wilson's with the effective number of rows, n divided by the design effect (Dean and Pagano 2015,
        modified Wilson interval): for credits of 0 and 1 it is Wilson's interval itself, for ties it is
        narrower, and rows with several equal votes count once.
        """
        if votes is None:
            rows, right = len(credits), float(credits.sum())
            return cls._of_moments(rows, float(rows), right, float(credits @ credits), right, float(rows))
        rows, total, right = len(credits), float(votes.sum()), float(credits.sum())
        squares = float(credits @ credits), float(credits @ votes), float(votes @ votes)
        return cls._of_moments(rows, total, right, *squares)

    @classmethod
    def _of_moments(
        cls, rows: int, total: float, right: float, squares: float, crossed: float, votes: float
    ) -> Proportion:
        """`squares`, `crossed` and `votes` are sums over rows: of right², right * votes and votes²."""
        if not total:
            return cls(0, 0)
        mean = total / rows
        # One right and one wrong row are added, so that rows with the same credit, such as ties alone, do not
        # get an interval of no width. They do not change the design effect of rows that are right or wrong.
        rate = (right + mean) / (total + 2 * mean)
        residuals = squares - 2 * rate * crossed + rate * rate * votes
        residuals += mean * mean * ((1 - rate) ** 2 + rate**2)
        effect = residuals * (rows + 2) / ((total + 2 * mean) ** 2 * rate * (1 - rate))
        return cls(right * rows / total, rows, rows / effect)

    @classmethod
    def of_influence(
        cls, rate: float, influence: NDArray[np.float64], clusters: NDArray[np.intp] | None = None
    ) -> Proportion:
        """Return a rate whose rows add `influence` to its error; with clusters it has the factor `left_out`.

        As in `of_rows`, one right and one wrong unit are added, so that no variance is 0.
        """
        rows, spread = len(influence), clustered_variance(influence, clusters)
        added = added_rows(influence, clusters)
        total = rows + 2 * added
        smoothed = (rate * rows + added) / total
        variance = spread.variance * rows**2 + added**2 * ((1 - smoothed) ** 2 + smoothed**2)
        effective = smoothed * (1 - smoothed) * total**2 / variance
        return cls(rate * rows, rows, effective, spread.clusters, spread.effective)

    @property
    def rate(self) -> float:
        """Share from 0 to 1; nan if n is 0."""
        return self.successes / self.n if self.n else math.nan

    @property
    def _units(self) -> float | None:
        return self.clusters if self.effective_clusters is None else self.effective_clusters

    @property
    def fault(self) -> str:
        """Why there is no interval; empty if there is one."""
        return "" if self.clusters is None else fault_of_clusters(self.clusters, self._units or 0.0)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval, as (low, high); nan for too few clusters."""
        if self.effective is None or not self.n:
            return wilson_interval(self.successes, self.n)
        if too_few(self._units):
            return math.nan, math.nan
        z = quantile(self._units)
        # Rounding may put a rate a little above 1, which `wilson_interval` refuses.
        return wilson_interval(min(1.0, self.rate) * self.effective, self.effective, z)

    @property
    def bounds(self) -> list[float] | None:
        """The interval as a JSON value; None for too few clusters."""
        return None if too_few(self._units) else list(self.interval)

    def record(self) -> dict[str, float | None]:
        """Return the rate with its interval as JSON values; None for what these rows do not give."""
        low, high = self.bounds or (None, None)
        return {"value": self.rate if self.n else None, "low": low, "high": high, "n": self.n}

    def __str__(self) -> str:
        if not self.n:
            return "n = 0"
        shown = estimated(self.rate, *(self.bounds or (math.nan, math.nan)))
        return f"{shown}, n = {self.n}{in_clusters(self.clusters)}"


def added_rows(influence: NDArray[np.float64], clusters: NDArray[np.intp] | None) -> float:
    """Return the number of rows of a unit that is added so that no variance is 0: 1 for independent rows."""
    if clusters is None:
        return 1.0
    import numpy as np

    sums, counts = np.bincount(clusters, weights=influence), np.bincount(clusters)
    squares = float(sums @ sums)
    informative = squares**2 / max(float((sums**4).sum()), math.ulp(0.0))
    effect = squares / max(float(influence @ influence), math.ulp(0.0))
    number = float((counts > 0).sum())
    return rows_of_unit(effect, informative, number, effective_clusters(clusters), len(influence))


def wilson_interval(successes: float, n: float, z: float = Z) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion (Wilson 1927); the quantile `z` is 1.96 for 95 %.

    Bounds are between 0 and 1; they are (0, 1) if n is 0. Raises ValueError unless 0 <= successes <= n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return 0.0, 1.0
    rate = successes / n
    centre = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def paired_difference(gained: int, lost: int, n: int, z: float = Z) -> tuple[float, tuple[float, float]]:
    """Return the change of a proportion over n pairs, and its interval; (nan, (-1, 1)) if n is 0.

    `gained` pairs became successes and `lost` pairs ceased to be. The interval is the adjusted Wald interval
    for matched pairs (Agresti and Min 2005: half a pair is added to each of the four kinds of pairs).
    """
    if n == 0:
        return math.nan, (-1.0, 1.0)
    total = n + 2
    up, down = (gained + 0.5) / total, (lost + 0.5) / total
    centre = up - down
    spread = z * math.sqrt((up + down - centre * centre) / total)
    return (gained - lost) / n, (max(-1.0, centre - spread), min(1.0, centre + spread))
