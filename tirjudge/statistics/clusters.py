"""Clusters of rows that depend on each other: their codes, variances and quantiles."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Z = 1.959963984540054
"""The quantile of the normal distribution behind a 95 % interval."""
LEAST_CLUSTERS = 20
"""Clusters below which no number has an interval: simulated, it would be far too narrow or too wide."""


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


def too_few(clusters: int | None) -> bool:
    """Return True if so few clusters give no interval; False for independent rows."""
    return clusters is not None and clusters < LEAST_CLUSTERS


def clustered_variance(
    influence: NDArray[np.float64], clusters: NDArray[np.intp] | None
) -> tuple[float, int | None]:
    """Return the variance, and the number of clusters; None for independent rows."""
    if clusters is None:
        return float(influence @ influence), None
    import numpy as np

    sums = np.bincount(clusters, weights=influence)
    count = int(clusters.max()) + 1
    return float(sums @ sums) * count / max(1, count - 1), count


def quantile(clusters: int | None = None) -> float:
    """Return the factor of a 95 % interval: normal, or Student's t for this number of clusters.

    The expansion of Cornish and Fisher differs from Student's quantile by less than 0.01 from 4 clusters on.
    """
    if clusters is None:
        return Z
    free = max(1, clusters - 1)
    powers = Z**3, Z**5, Z**7
    return (
        Z
        + (powers[0] + Z) / (4 * free)
        + (5 * powers[1] + 16 * powers[0] + 3 * Z) / (96 * free**2)
        + (3 * powers[2] + 19 * powers[1] + 17 * powers[0] - 15 * Z) / (384 * free**3)
    )
