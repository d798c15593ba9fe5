"""Human reasons and a judge's, matched one to one, and the two measures that are taken of a matching."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A human reason and the judge's reason that expresses it; both are indices from 0."""

    human: int
    reason: int
    score: float
    """Above 0, at most 1: how far the one expresses the other."""


@dataclass(frozen=True, slots=True)
class Matching:
    """A one-to-one matching: no human reason and no reason of the judge is in two pairs."""

    pairs: tuple[Pair, ...]
    """Ordered by the human reason."""
    humans: int
    """How many human reasons there are; at least 1."""
    reasons: int
    """How many the judge gave."""

    @property
    def total(self) -> float:
        """S_total (Eq. 1): the sum of the scores."""
        return math.fsum(pair.score for pair in self.pairs)

    @property
    def recall(self) -> float:
        """S_total / |R_h|, from 0 to 1: what Rationale Consistency is the mean of."""
        return self.total / self.humans

    @property
    def average_precision(self) -> float:
        """AP (Eq. 3), from 0 to 1: the mean over human reasons of the precision at each reason matched.

        A reason counts as matched whatever its score above 0, and P@k is the share of the first k that are.
        """
        matched = sorted(pair.reason for pair in self.pairs)
        return math.fsum(found / (k + 1) for found, k in enumerate(matched, 1)) / self.humans


def match(scores: Sequence[Sequence[float]], reasons: int) -> Matching:
    """The matching with the greatest sum of scores (Eq. 1).

    `scores[i][j]`, from 0 to 1, is how far the judge's reason j expresses the human reason i: a row of
    `reasons` numbers for every human reason, at least one. A pair with score 0 is none. Raises ValueError
    for another shape or range, and ImportError, naming the extra, without scipy.
    """
    if not scores or any(len(row) != reasons for row in scores):
        raise ValueError(f"scores must be one row of {reasons} numbers for each human reason")
    if not all(0 <= score <= 1 for row in scores for score in row):
        raise ValueError("a score lies between 0 and 1")
    pairs = _assigned(scores) if reasons else ()
    return Matching(tuple(pair for pair in pairs if pair.score > 0), len(scores), reasons)


def rationale_consistency(matchings: Sequence[Matching]) -> float:
    """RC (Eq. 2), from 0 to 1: the mean soft recall over samples. Raises ValueError without any."""
    if not matchings:
        raise ValueError("rationale consistency is a mean over samples: there are none")
    return math.fsum(matching.recall for matching in matchings) / len(matchings)


def _assigned(scores: Sequence[Sequence[float]]) -> tuple[Pair, ...]:
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError(f"matching reasons needs `pip install tirjudge[eval]`: {error}") from error
    humans, reasons = linear_sum_assignment(scores, maximize=True)
    return tuple(Pair(int(i), int(j), float(scores[i][j])) for i, j in zip(humans, reasons, strict=True))
