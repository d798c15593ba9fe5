"""Proportions with their confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proportion:
    """Successes out of n trials; `str` gives `73.2% [65.9%, 79.4%], n = 164`."""

    successes: float
    """May be fractional, for ties that count one half."""
    n: int

    @property
    def rate(self) -> float:
        """Share from 0 to 1; nan if n is 0."""
        return self.successes / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval, as (low, high)."""
        return wilson_interval(self.successes, self.n)

    def __str__(self) -> str:
        if not self.n:
            return "n = 0"
        low, high = self.interval
        return f"{self.rate:.1%} [{low:.1%}, {high:.1%}], n = {self.n}"


def wilson_interval(successes: float, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
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
