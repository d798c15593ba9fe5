"""Tests of significance: of changes between two runs and of a mean, and corrections for several tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tirjudge.statistics.clusters import clustered_variance, left_out, too_few

_LEAST_TESTED = 1.5
"""Effective clusters below which a test rejects nothing."""


def mcnemar(gained: int, lost: int) -> float:
    """Return McNemar's two-sided mid-p value of these discordant pairs (Fagerland et al. 2013).

    Raises ValueError, in one line, without scipy.
    """
    if not gained + lost:
        return 1.0
    bdtr = _distribution("bdtr", "McNemar's test")
    fewer, pairs = min(gained, lost), gained + lost
    # Half of the probability of as few counts: the mean of P(X <= fewer) and P(X < fewer).
    less = bdtr(fewer - 1, pairs, 0.5) if fewer else 0.0
    return float(min(1.0, bdtr(fewer, pairs, 0.5) + less))


def clustered_mcnemar(changes: NDArray[np.float64], clusters: NDArray[np.intp]) -> float:
    """Return the two-sided p value of changes (1 gained, -1 lost, 0) that depend on each other in clusters.

    It is the test of Durkalski et al. 2003, whose statistic is the sum of the changes divided by the root of
    the sum of the clusters' squared changes, with Student's t for the clusters that have a change.

    Raises ValueError, in one line, without scipy.
    """
    sums = np.bincount(clusters, weights=changes)
    squares, changed = float(sums @ sums), int((sums != 0).sum())
    if not squares:
        return 1.0
    stdtr = _distribution("stdtr", "a clustered test")
    return float(2 * stdtr(max(1, changed - 1), -abs(float(sums.sum())) / math.sqrt(squares)))


def below(values: NDArray[np.float64], limit: float, clusters: NDArray[np.intp] | None = None) -> float:
    """Return the p value of Student's test that the mean of the values is below a limit, by cluster if any.

    Raises ValueError, in one line, without scipy.
    """
    stdtr = _distribution("stdtr", "a test of means")
    own = np.arange(len(values)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    own, mean = own.astype(np.intp), float(values.mean())
    spread = clustered_variance((values - mean) / len(values) * left_out(own), own)
    few = clusters is not None and len(np.unique(own)) < len(own) and too_few(spread.effective)
    if not spread.variance or few or spread.effective is None or spread.effective < _LEAST_TESTED:
        return 0.0 if not spread.variance and mean < limit and len(values) > 1 else 1.0
    return float(stdtr(spread.effective - 1, (mean - limit) / spread.error))


def _distribution(name: str, purpose: str) -> Callable[..., float]:
    """Return a distribution function of scipy. Raises ValueError, in one line, without scipy."""
    try:
        # `scipy.stats` takes 45 MiB more.
        import scipy.special
    except ModuleNotFoundError:
        raise ValueError(f"{purpose} needs the extra `eval`: pip install 'tirjudge[eval]'") from None
    found: Callable[..., float] = getattr(scipy.special, name)
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values of several tests, corrected for their number (Holm 1979)."""
    found, largest = [1.0] * len(p_values), 0.0
    for place, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, p_values[number] * (len(p_values) - place))
        found[number] = min(1.0, largest)
    return found


def false_discoveries(p_values: Sequence[float], rate: float = 0.05) -> list[bool]:
    """Return which nulls are rejected at a rate of false discoveries (Benjamini and Yekutieli 2001)."""
    ranked, count = sorted(p_values), len(p_values)
    least = rate / sum(1 / rank for rank in range(1, count + 1)) / count
    rejected = [one for rank, one in enumerate(ranked, 1) if one <= rank * least]
    return [bool(rejected) and one <= rejected[-1] for one in p_values]
