"""Simulated runs whose true figures are known, and the coverage of their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Interval = tuple[float, float]
LEAST, MOST, REJECTED = 0.93, 0.975, 0.06
"""Bounds of the coverage and of the share of rejected true nulls."""


@dataclass(frozen=True)
class Case:
    """A kind of figure: what one simulated run gives."""

    name: str
    truth: float
    interval: Callable[[np.random.Generator], Interval] | None = None
    p_value: Callable[[np.random.Generator], float] | None = None
    """The p-value of one simulated run in which there is nothing to find."""
    least: float = LEAST
    """Least coverage."""
    most: float = MOST


@dataclass(frozen=True)
class Found:
    """The outcome of all simulated runs of a case."""

    name: str
    repeats: int
    printed: float
    """Share of the runs with an interval."""
    covered: float
    """Share of the printed intervals that contain the truth; the share of rejected nulls for a test."""
    is_test: bool
    least: float = LEAST
    most: float = MOST

    def holds(self, slack: float = 2) -> bool:
        """Return True for a share within the bounds, by so many of its standard errors, or for none."""
        if not self.printed:
            return True
        slack *= math.sqrt(0.05 * 0.95 / (self.repeats * self.printed))
        if self.is_test:
            return self.covered <= REJECTED + slack
        return self.least - slack <= self.covered <= self.most + slack


def measured(case: Case, repeats: int, seed: int) -> Found:
    """Simulate a case."""
    draw = np.random.default_rng([seed, *case.name.encode()])
    if case.p_value is not None:
        rejected = sum(case.p_value(draw) < 0.05 for _ in range(repeats))
        return Found(case.name, repeats, 1.0, rejected / repeats, True)
    assert case.interval is not None
    bounds = [one for one in (case.interval(draw) for _ in range(repeats)) if not math.isnan(one[0])]
    inside = sum(low <= case.truth <= high for low, high in bounds)
    covered = inside / max(1, len(bounds))
    return Found(case.name, repeats, len(bounds) / repeats, covered, False, case.least, case.most)
