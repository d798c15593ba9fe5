"""Agreement and correlation of raters, with the influence of every row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tirjudge.statistics.estimators import Fitted

Values = NDArray[np.float64]
LEAST_RATED = 100
"""Rows below which a correlation of ratings has no interval."""
_ROUNDING = 1e-12
"""Distance from 1 below which a correlation is perfect; one row among many departs further."""


def correlation(value: float, n: int, errors: Values) -> Fitted:
    """Return a number from -1 to 1 of `n` rows, where `errors` has the influence of every unit."""
    fault = "" if math.isfinite(value) and errors.any() else "the values do not vary"
    # Rounding leaves a perfect correlation a little below 1, and its errors a little above 0.
    if abs(value) > 1 - _ROUNDING:
        fault = "no row departs from a perfect correlation"
    if n < LEAST_RATED:
        fault = f"fewer than {LEAST_RATED} rows"
    return Fitted(value, n, errors, fault, is_correlation=True)


def mean_correlation(values: Values, places: NDArray[np.intp], size: int) -> Fitted:
    """Return the mean of correlations, whose places among `size` units are given.

    Half of a correlation plus 1 is a share, and so the mean has the interval of a share: Student's covers too
    rarely, since the correlations of few rows are often 1 or -1.
    """
    mean = float(values.mean())
    errors = np.zeros(size)
    errors[places] = (values - mean) / len(values)
    fault = "" if np.ptp(values) > _ROUNDING else "the values do not vary"
    return Fitted(mean, len(values), errors, fault, by_chance=0.5)


def scott_pi(table: Values) -> float:
    """Return Scott's pi of a table of two raters, whose expected agreement is that of their mean shares."""
    expected = chance_of_pi(table)
    return _ratio(float(table.trace() / table.sum()) - expected, 1 - expected)


def chance_of_pi(table: Values) -> float:
    """Return the agreement that Scott's pi expects of chance."""
    shares = table / table.sum()
    means = (shares.sum(axis=0) + shares.sum(axis=1)) / 2
    return float(means @ means)


def spearman(table: Values, levels: Values) -> float:
    """Return the correlation of the ranks, with equal ranks for equal ratings, of a table of two raters."""
    shares = table / table.sum()
    sums = shares.sum(axis=1), shares.sum(axis=0)
    one, other = (_mean_ranks(one) - 0.5 for one in sums)
    spreads = float(one**2 @ sums[0]) * float(other**2 @ sums[1])
    return _ratio(float(one @ shares @ other), math.sqrt(spreads))


def kendall(table: Values, levels: Values) -> float:
    """Return tau-b of a table of two raters (Kendall 1945)."""
    shares = table / table.sum()
    # The share of all rows whose ratings are both higher, and of those with one higher and one lower.
    higher = shares[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    mixed = shares[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)
    concordant = float((shares[:-1, :-1] * higher[1:, 1:]).sum())
    discordant = float((shares[:-1, 1:] * mixed[1:, :-1]).sum())
    untied = [1 - float((shares.sum(axis=axis) ** 2).sum()) for axis in (0, 1)]
    return _ratio(2 * (concordant - discordant), math.sqrt(max(0.0, untied[0] * untied[1])))


def weighted_kappa(table: Values, levels: Values, power: int) -> float:
    """Return kappa whose disagreements weigh as the difference of the ratings, to a power (Cohen 1968)."""
    shares = table / table.sum()
    weights = np.abs(levels[:, None] - levels) ** power
    expected = float(shares.sum(axis=1) @ weights @ shares.sum(axis=0))
    return 1 - _ratio(float((shares * weights).sum()), expected)


ORDINAL: dict[str, Callable[..., float]] = {
    "Spearman": spearman,
    "Kendall": kendall,
    "quadratic kappa": partial(weighted_kappa, power=2),
    "linear kappa": partial(weighted_kappa, power=1),
}
"""Numbers by name, of a table of two raters and of the levels of its rows and columns."""


def alpha(ratings: Values, level: Literal["nominal", "ordinal"]) -> Fitted:
    """Return Krippendorff's alpha of an array of shape (raters, rows), nan where a rater has not rated.

    Rows with fewer than two ratings are left out (Krippendorff 2011, Computing alpha-reliability).
    """
    known = ~np.isnan(ratings)
    levels, codes = np.unique(ratings[known], return_inverse=True)
    counts = np.zeros((ratings.shape[1], len(levels)))
    np.add.at(counts, (np.nonzero(known)[1], codes), 1)
    several = counts.sum(axis=1) > 1
    shares = counts[several] / (counts[several].sum(axis=1, keepdims=True) - 1)
    pairs = shares.T @ counts[several] - np.diag(shares.sum(axis=0))
    value = _alpha(pairs, level)
    slopes = np.zeros_like(pairs)
    for cell in np.argwhere(pairs > 0).tolist():
        step = 1e-4 * pairs[*cell]
        more, less = pairs.copy(), pairs.copy()
        more[*cell] += step
        less[*cell] -= step
        slopes[*cell] = (_alpha(more, level) - _alpha(less, level)) / (2 * step)
    errors = np.zeros(ratings.shape[1])
    errors[several] = ((shares @ slopes) * counts[several]).sum(axis=1) - shares @ slopes.diagonal()
    found = correlation(value, int(several.sum()), errors)
    if level == "ordinal":
        return found
    totals = pairs.sum(axis=1) / pairs.sum()
    return replace(found, by_chance=float(totals @ totals))


def _alpha(pairs: Values, level: Literal["nominal", "ordinal"]) -> float:
    """Return alpha of the coincidences of levels, an array of shape (levels, levels)."""
    totals, count = pairs.sum(axis=1), float(pairs.sum())
    middles = totals.cumsum() - totals / 2
    distances = (middles[:, None] - middles) ** 2 if level == "ordinal" else 1 - np.eye(len(totals))
    expected = float(totals @ distances @ totals)
    return 1 - (count - 1) * _ratio(float((pairs * distances).sum()), expected)


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else math.nan


def _mean_ranks(shares: Values) -> Values:
    """Return the mean rank of each level, from 0 to 1."""
    found: Values = shares.cumsum() - shares / 2
    return found


def rank_correlation(one: Values, other: Values) -> float:
    """Return Spearman's correlation of ratings with many levels."""
    first, second = (_ranks(values) - 0.5 for values in (one, other))
    return _ratio(float(first @ second), math.sqrt(float(first @ first) * float(second @ second)))


def pearson(one: Values, other: Values) -> tuple[float, Values]:
    """Return Pearson's correlation of two raters, and what each row adds to its error."""
    spreads = float(one.std()), float(other.std())
    if not all(spreads):
        return math.nan, np.zeros(len(one))
    first, second = (
        (values - values.mean()) / spread for values, spread in zip((one, other), spreads, strict=True)
    )
    value = min(1.0, max(-1.0, float((first * second).mean())))
    errors: Values = (first * second - value * (first**2 + second**2) / 2) / len(one)
    return value, errors


def ranked(one: Values, other: Values) -> tuple[float, Values]:
    """Return Spearman's correlation of two raters, and what each row adds to its error.

    A row adds its own product of ranks, and moves the ranks of all rows above it.
    """
    first, second = (_ranks(values) for values in (one, other))
    value = rank_correlation(one, other)
    spreads = [float((ranks**2).mean()) - 0.25 for ranks in (first, second)]
    if not min(spreads) > 0:
        return value, np.zeros(len(one))
    product = first * second + _above(one, second) + _above(other, first)
    squares = [ranks**2 + 2 * _above(values, ranks) for values, ranks in ((one, first), (other, second))]
    errors = product / math.sqrt(spreads[0] * spreads[1])
    for square, spread in zip(squares, spreads, strict=True):
        errors = errors - value / 2 * square / spread
    found: Values = (errors - errors.mean()) / len(one)
    return value, found


def _above(values: Values, weights: Values) -> Values:
    """Return for each row the weights of rows with a higher value, and half of those of equal ones, by n."""
    _, codes = np.unique(values, return_inverse=True)
    sums = np.bincount(codes, weights=weights)
    higher: Values = (sums[::-1].cumsum()[::-1] - sums / 2)[codes] / len(values)
    return higher


def pairs_correlation(one: Values, other: Values) -> float:
    """Return tau-b of a few rows, by all of their pairs (Kendall 1945); nan if a rater does not vary."""
    first, second = (np.sign(values[:, None] - values) for values in (one, other))
    return _ratio(float((first * second).sum()), math.sqrt(float((first**2).sum() * (second**2).sum())))


OF_PROMPT: dict[str, Callable[[Values, Values], float]] = {
    "Pearson": lambda one, other: pearson(one, other)[0],
    "Spearman": rank_correlation,
    "Kendall": pairs_correlation,
}
"""Correlations of the rows of one prompt, whose mean over the prompts is a figure of its own."""


def by_prompt(
    one: Values, other: Values, clusters: NDArray[np.intp]
) -> dict[str, tuple[Values, NDArray[np.intp]]]:
    """Return the correlations of each prompt in which both raters vary, and the first row of the prompt."""
    order = np.argsort(clusters, kind="stable")
    prompts = np.split(order, np.flatnonzero(np.diff(clusters[order])) + 1)
    prompts = [rows for rows in prompts if np.ptp(one[rows]) > 0 and np.ptp(other[rows]) > 0]
    first = np.array([rows[0] for rows in prompts], dtype=np.intp)
    return {
        name: (np.array([function(one[rows], other[rows]) for rows in prompts]), first)
        for name, function in OF_PROMPT.items()
    }


def _ranks(values: Values) -> Values:
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    return _mean_ranks(counts / len(values))[codes]


def tau(one: Values, other: Values) -> float:
    """Return tau-b of ratings with many levels. Raises ValueError, in one line, without scipy."""
    try:
        from scipy.stats import kendalltau
    except ModuleNotFoundError:
        raise ValueError("Kendall's tau needs the extra `eval`: pip install 'tirjudge[eval]'") from None
    return float(kendalltau(one, other).statistic)
