"""Selective judging: risk against coverage of a confidence, and thresholds chosen on one half of the rows.

Risk is the share of wrong verdicts among those that are kept, coverage the share of rows that are kept
(El-Yaniv and Wiener 2010; Geifman and El-Yaniv 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tirjudge.evaluation.calibration.people import NO_VERDICT
from tirjudge.evaluation.calibration.rows import CalibratedRow
from tirjudge.evaluation.scoring import RESAMPLES, Values, central_interval
from tirjudge.statistics import Proportion
from tirjudge_environments.types import derive_seed

_HALVES = "calibration half"
"""Part of the seed; another text would put rows into other halves."""


@dataclass(frozen=True, slots=True)
class Point:
    """A threshold: verdicts with at least this confidence are kept."""

    threshold: float
    coverage: Proportion
    """Kept verdicts among all rows, those without a verdict included."""
    risk: Proportion
    """Wrong verdicts among the kept ones."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Risk against coverage, one point for each value of the confidence, from the highest on."""

    points: tuple[Point, ...]
    n: int
    """Rows with a label."""
    ordered: int
    """Rows with a verdict and a confidence, over which AURC is the mean."""
    aurc: float
    """Area under the curve: the mean of the risk over all numbers of kept verdicts; lower is better."""
    interval: tuple[float, float]
    """95 % interval of AURC: percentiles of the bootstrap over rows."""
    random: float
    """AURC of a confidence that says nothing: the risk of all verdicts."""
    best: float
    """AURC of a confidence that puts all right verdicts before all wrong ones."""

    @property
    def is_constant(self) -> bool:
        """True if every verdict has the same confidence, which then cannot order any."""
        return len(self.points) < 2


@dataclass(frozen=True, slots=True)
class Verified:
    """A threshold that was chosen on one half of the rows, and its numbers on the other."""

    target: float
    chosen: Point | None
    """On the first half; None if no threshold has so low a risk there, with its interval."""
    verified: Point | None
    """On the second half, with the same threshold."""
    lowest: Point
    """The point of the first half whose interval of the risk ends lowest."""

    @property
    def holds(self) -> bool:
        """True if the risk on the second half is at most the target; false if nothing is kept there."""
        return (
            self.verified is not None and self.verified.risk.n > 0 and self.verified.risk.rate <= self.target
        )


def labelled(rows: Sequence[CalibratedRow]) -> list[CalibratedRow]:
    """Return the rows that most annotators agree on, which a verdict can be right or wrong about."""
    return [row for row in rows if row.gold is not None]


def curve(rows: Sequence[CalibratedRow], *, seed: int) -> Curve:
    """Return the curve of rows with a majority label. Raises ValueError if no verdict has a confidence."""
    confidence, wrong = _ordered(rows)
    if not len(confidence):
        raise ValueError("no labelled row has a verdict with this confidence")
    draws = np.random.default_rng(seed).integers(len(wrong), size=(RESAMPLES, len(wrong)))
    areas = [aurc(confidence[draw], wrong[draw]) for draw in draws]
    return Curve(
        points=tuple(points(rows)),
        n=len(rows),
        ordered=len(wrong),
        aurc=aurc(confidence, wrong),
        interval=central_interval(areas),
        random=float(wrong.mean()),
        best=aurc(-wrong, wrong),
    )


def points(rows: Sequence[CalibratedRow]) -> list[Point]:
    """Return one point for each value of the confidence, from the highest on."""
    confidence, wrong = _ordered(rows)
    order = np.argsort(-confidence, kind="stable")
    values, total = confidence[order], np.cumsum(wrong[order])
    ends = np.flatnonzero(np.append(np.diff(values) != 0, True)[: len(values)])
    return [
        Point(
            float(values[end]),
            Proportion(int(end) + 1, len(rows)),
            Proportion(float(total[end]), int(end) + 1),
        )
        for end in ends
    ]


def point(rows: Sequence[CalibratedRow], threshold: float) -> Point:
    """Return coverage and risk of a threshold."""
    confidence, wrong = _ordered(rows)
    kept = confidence >= threshold
    count = int(kept.sum())
    return Point(threshold, Proportion(count, len(rows)), Proportion(float(wrong[kept].sum()), count))


def aurc(confidence: Values, wrong: Values) -> float:
    """Return the mean, over k from 1 to n, of the risk of the k most confident verdicts.

    Verdicts with the same confidence are in random order, and the result is the expectation over all of
    these orders. `wrong` has 1 for a wrong verdict and 0 for a right one.
    """
    order = np.argsort(-confidence, kind="stable")
    values, wrong = confidence[order], wrong[order]
    ends = np.append(np.flatnonzero(np.diff(values)) + 1, len(values))
    totals = np.append(0.0, np.cumsum(wrong)[ends - 1])
    # Within equal confidences the expected number of wrong verdicts grows in a straight line.
    counts = np.arange(1, len(values) + 1)
    return float(np.mean(np.interp(counts, np.append(0, ends), totals) / counts))


def halves(rows: Sequence[CalibratedRow], *, seed: int) -> tuple[list[CalibratedRow], list[CalibratedRow]]:
    """Split rows by a hash of seed and id, so that a row stays in its half whatever else is in the file."""
    split: tuple[list[CalibratedRow], list[CalibratedRow]] = ([], [])
    for row in rows:
        split[derive_seed(seed, _HALVES, row.id) % 2].append(row)
    return split


def chosen_and_verified(rows: Sequence[CalibratedRow], target: float, *, seed: int) -> Verified:
    """Choose the threshold with the highest coverage whose risk is surely at most `target` on one half.

    The upper end of the risk's interval counts: a threshold whose risk just reaches the target there exceeds
    it on other rows half of the time. Raises ValueError, in one line, if a half has no verdict with a
    confidence.
    """
    first, second = halves(rows, seed=seed)
    known = points(first)
    if not known or not len(_ordered(second)[0]):
        raise ValueError(f"{len(rows)} labelled rows are too few to choose a threshold on one half")
    fitting = [one for one in known if one.risk.interval[1] <= target]
    chosen = max(fitting, key=lambda one: one.coverage.rate, default=None)
    return Verified(
        target=target,
        chosen=chosen,
        verified=None if chosen is None else point(second, chosen.threshold),
        lowest=min(known, key=lambda one: one.risk.interval[1]),
    )


def _is_ordered(row: CalibratedRow) -> bool:
    return row.decision != NO_VERDICT and row.confidence is not None and math.isfinite(row.confidence)


def _ordered(rows: Sequence[CalibratedRow]) -> tuple[Values, Values]:
    """Return the confidence of each verdict that has one, and 1 for wrong verdicts."""
    kept = [row for row in rows if _is_ordered(row)]
    confidence = np.array([row.confidence for row in kept], dtype=np.float64)
    return confidence, np.array([row.decision != row.gold for row in kept], dtype=np.float64)
