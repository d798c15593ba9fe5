"""Clusters of rows that depend on each other: their codes, effective number, variances and quantiles."""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

Z = 1.959963984540054
"""The quantile of the normal distribution behind a 95 % interval."""
LEAST_CLUSTERS = 20
"""Effective clusters below which no number has an interval: simulated, it would be far too narrow or wide."""
_PRIOR_CLUSTERS = 2
"""Clusters that as many informative clusters outweigh in an estimate of how alike rows of a cluster are."""
_STUDENT = {1: 12.7062, 2: 4.3027, 3: 3.1824}
"""Quantiles of Student's t by its degrees of freedom, where the expansion in `quantile` is not close."""


def prompt_cluster(prompt: object) -> str:
    """Return what rows with the same prompt have in common, as the name of their cluster; empty without one.

    A prompt is a text, or messages as JSON values. Every figure finds its clusters in this way.
    """
    if isinstance(prompt, str) or not prompt:
        return prompt if isinstance(prompt, str) else ""
    return json.dumps(prompt, default=str, sort_keys=True)


def cluster_digest(name: str) -> int:
    """Return a number for what the rows of a cluster have in common; 0 for nothing."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) if name else 0


def cluster_codes(digests: array[int]) -> NDArray[np.intp] | None:
    """Number the clusters of rows from 0, in the order of their digests; a row with 0 is its own cluster.

    None if no two rows belong together.
    """
    import numpy as np

    found = np.frombuffer(digests, dtype=np.uint64)
    ordered = np.sort(found)
    if not (ordered[1:][ordered[1:] == ordered[:-1]] != 0).any():
        return None
    kinds, codes = np.unique(found, return_inverse=True)
    alone = found == 0
    codes = codes.astype(np.intp)
    codes[alone] = len(kinds) + np.arange(int(alone.sum()))
    return np.unique(codes, return_inverse=True)[1].astype(np.intp)


def in_clusters(count: int | None) -> str:
    """Return ` in 7 clusters`; empty for independent rows."""
    return "" if count is None else f" in {count} cluster{'s' * (count != 1)}"


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of a number over independent rows, or over clusters of rows that depend on each other."""

    variance: float
    clusters: int | None = None
    """Number of clusters; None for independent rows."""
    effective: float | None = None
    """Effective number of clusters, see `effective_clusters`; None for independent rows."""

    @property
    def error(self) -> float:
        """The standard error."""
        return math.sqrt(self.variance)

    @property
    def quantile(self) -> float:
        """The factor of a 95 % interval."""
        return quantile(self.effective)


def cluster_shares(clusters: NDArray[np.intp], weights: NDArray[np.float64] | None = None) -> Values:
    """Return the share of each cluster in the weights of the rows; each row weighs 1 without weights."""
    import numpy as np

    total = np.bincount(clusters, weights=weights).astype(np.float64)
    return total / max(float(total.sum()), math.ulp(0.0))


def effective_clusters(clusters: NDArray[np.intp], weights: NDArray[np.float64] | None = None) -> float:
    """Return the number of clusters of equal weight that average as much: (sum n_g)² / sum n_g² (Kish 1965).

    It is the number of clusters if all have the same weight, and 4 if one of many has half of the rows.
    """
    shares = cluster_shares(clusters, weights)
    squares = float(shares @ shares)
    return 1 / squares if squares else 0.0


def left_out(clusters: NDArray[np.intp], weights: NDArray[np.float64] | None = None) -> Values:
    """Return the factor of each row's influence that makes the variance that of the jackknife by cluster.

    A mean without a cluster of the share h differs by the cluster's influence divided by 1 - h: without this
    factor, a large cluster pulls the mean toward itself and hides its own error (Bell and McCaffrey 2002).
    """
    import numpy as np

    rest = 1 - cluster_shares(clusters, weights)
    factors: Values = np.where(rest > 0, 1 / np.where(rest > 0, rest, 1), 1)[clusters]
    return factors


def rows_of_unit(
    design_effect: float, informative: float, clusters: float, effective: float, rows: float
) -> float:
    """Return the number of rows of a unit that is added so that no variance is 0.

    It is the design effect. Where few clusters are informative, as they have errors, that effect is hardly
    known, and the size of an effective cluster takes its place; the more so, the more unequal clusters are.
    """
    size, prior = rows / max(effective, 1.0), _PRIOR_CLUSTERS * max(1.0, clusters / max(effective, 1.0))
    known = min(size, max(1.0, design_effect))
    return (informative * known + prior * size) / (informative + prior)


def clustered_variance(
    influence: NDArray[np.float64],
    clusters: NDArray[np.intp] | None,
    weights: NDArray[np.float64] | None = None,
) -> Spread:
    """Return the variance of a number whose rows add `influence` to its error.

    With clusters, influences have the factor `left_out`, and `weights` say how much each row counts for the
    effective number of clusters; clusters without weight are left out.
    """
    if clusters is None:
        return Spread(float(influence @ influence))
    import numpy as np

    sums, shares = np.bincount(clusters, weights=influence), cluster_shares(clusters, weights)
    count = int((shares > 0).sum())
    variance = float(sums @ sums) * (count - 1) / max(1, count)
    return Spread(variance, count, effective_clusters(clusters, weights))


def too_few(effective: float | None) -> bool:
    """Return True if so few effective clusters give no interval; False for independent rows.

    A cluster that lacks a row or two of the size of the others does not count as missing.
    """
    return effective is not None and effective < LEAST_CLUSTERS - 0.5


def fault_of_clusters(count: int, effective: float) -> str:
    """Return why rows in so many clusters give no interval; empty if they do."""
    if count < LEAST_CLUSTERS:
        return f"fewer than {LEAST_CLUSTERS} clusters of rows"
    if too_few(effective):
        return f"{count} clusters of unequal size count as {effective:.1f}, fewer than {LEAST_CLUSTERS}"
    return ""


def quantile(units: float | None = None) -> float:
    """Return the factor of a 95 % interval: normal, or Student's t for this number of clusters or rows.

    The number may be fractional. From 5 on, the expansion of Cornish and Fisher differs from Student's
    quantile by less than 0.01. Below, only whole numbers are as close: the others are off by up to 2.9.
    """
    if units is None:
        return Z
    free = max(1.0, units - 1)
    if free in _STUDENT:
        return _STUDENT[int(free)]
    powers = Z**3, Z**5, Z**7
    return (
        Z
        + (powers[0] + Z) / (4 * free)
        + (5 * powers[1] + 16 * powers[0] + 3 * Z) / (96 * free**2)
        + (3 * powers[2] + 19 * powers[1] + 17 * powers[0] - 15 * Z) / (384 * free**3)
    )
