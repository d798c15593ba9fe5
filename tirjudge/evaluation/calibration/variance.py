"""Variance of a judge: the verdicts and the accuracy of the same rows over reruns and over orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tirjudge.evaluation.calibration.rows import CalibratedRow, class_of, sample_decision
from tirjudge.statistics import Proportion


@dataclass(frozen=True, slots=True)
class Variance:
    """Verdicts of the same rows, repeated."""

    over: str
    """`reruns`: the samples of a row; `orders`: the orders of its responses."""
    accuracies: tuple[Proportion, ...]
    """Accuracy of each rerun, or of each place of an order among those of a row."""
    changed: Proportion
    """Rows whose verdicts are not all the same."""
    within_rows: float
    """Mean variance of right (1) and wrong (0) among the repetitions of a row; unbiased."""

    @property
    def deviation(self) -> float:
        """Standard deviation of the accuracies."""
        return float(np.std([one.rate for one in self.accuracies], ddof=1))

    @property
    def expected_deviation(self) -> float:
        """Standard deviation that independent repetitions of each row would give the accuracies."""
        return float(np.sqrt(self.within_rows / self.changed.n))


def variances(rows: Sequence[CalibratedRow]) -> list[Variance]:
    """Return the variance over reruns and over orders, where the rows have several.

    Rows need a majority label. A missing verdict is wrong, and differs from every verdict.
    """
    reruns = _variance("reruns", ((row, _by_sample(row)) for row in rows))
    orders = _variance("orders", ((row, _by_order(row)) for row in rows))
    return [one for one in (reruns, orders) if one is not None]


def _variance(over: str, repeated: Iterable[tuple[CalibratedRow, Sequence[int]]]) -> Variance | None:
    kept = [(row.gold, classes) for row, classes in repeated if len(classes) > 1]
    if not kept:
        return None
    count = max(len(classes) for _, classes in kept)
    right = [[one == gold for one in classes] for gold, classes in kept]
    accuracies = []
    for place in range(count):
        column = [one[place] for one in right if len(one) > place]
        accuracies.append(Proportion(sum(column), len(column)))
    return Variance(
        over=over,
        accuracies=tuple(accuracies),
        changed=Proportion(sum(len(set(classes)) > 1 for _, classes in kept), len(kept)),
        within_rows=float(np.mean([np.var(one, ddof=1) for one in right])),
    )


def _by_sample(row: CalibratedRow) -> list[int]:
    """Return the class of each sample's decision."""
    samples = defaultdict(list)
    for vote in row.votes:
        samples[vote.sample].append(vote)
    return [class_of(sample_decision(samples[number])) for number in sorted(samples)]


def _by_order(row: CalibratedRow) -> list[int]:
    """Return the class of each vote of the first sample, whose orders are all different."""
    first = [vote for vote in row.votes if vote.sample == min(one.sample for one in row.votes)]
    return [class_of(vote.best) for vote in first] if len({vote.order for vote in first}) > 1 else []
