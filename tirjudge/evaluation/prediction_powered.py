"""Prediction-powered inference: a few labels of people correct the bias of a judge that judged every row.

The estimator is PPI++ (Angelopoulos, Duchi and Zrnic 2023), as `ppi_mean_ci` of the authors' package
ppi-python computes it, with the variance of the sums over clusters where rows depend on each other, and with
Student's quantile for the number of labelled rows or clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.calibration import CalibratedRow, clusters_of
from tirjudge.evaluation.people import NO_VERDICT, TIE, class_name
from tirjudge.statistics.clusters import clustered_variance, effective_clusters, left_out, quantile
from tirjudge.statistics.estimators import Mean

Values = NDArray[np.float64]
LEAST_LABELLED = 50
"""Labelled rows, and clusters of labelled rows, below which a corrected mean has no interval."""
LEAST_OF_EACH = 15
"""Labelled rows that must differ from the most frequent value, below which there is no interval."""
LEAST_CLUSTERS_OF_EACH = 30
"""The same for clusters of labelled rows, in which a value may occur several times."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """A mean over all rows of a run: what the judge says, and what people would say."""

    name: str
    judge: float
    """The judge's mean over all rows."""
    judge_interval: tuple[float, float]
    people: float
    """The people's mean over the labelled rows alone."""
    people_interval: tuple[float, float]
    value: float
    """The corrected mean."""
    interval: tuple[float, float]
    """95 % interval; nan for too few labels."""
    labelled: int
    unlabelled: int
    weight: float
    """The weight of the judge's verdicts, from 0 (people alone) to 1, which makes the variance smallest."""
    fault: str = ""
    """Why there is no interval; empty if there is one."""


def corrected(labelled: Sequence[CalibratedRow], others: Sequence[CalibratedRow]) -> list[Corrected]:
    """Return the win rate of the first response in pairs, and the share of each class.

    `labelled` rows have a majority label. Empty if every row is labelled, so that there is nothing to infer.
    """
    if not others or not labelled:
        return []
    clusters = clusters_of([*labelled, *others])
    gold = [NO_VERDICT if row.gold is None else row.gold for row in labelled]
    said = [row.decision for row in labelled]
    rest = [row.decision for row in others]
    classes = sorted({*gold, *said, *rest} - {NO_VERDICT}, key=lambda one: (one < 0, one))

    def mean(name: str, value: Callable[[int], float]) -> Corrected:
        people, judged, unseen = (np.array(list(map(value, column))) for column in (gold, said, rest))
        return prediction_powered(name, people, judged, unseen, clusters)

    wins = {0: 1.0, 1: 0.0}
    pairs = [mean("win rate of A", lambda kind: wins.get(kind, 0.5))] if {*classes} <= {0, 1, TIE} else []
    return pairs + [mean(f"share of {class_name(kind)}", partial(_is, kind)) for kind in classes]


def _is(kind: int, other: int) -> float:
    return float(kind == other)


def prediction_powered(
    name: str, people: Values, judged: Values, others: Values, clusters: NDArray[np.intp] | None = None
) -> Corrected:
    """Return the mean that people would give all rows.

    `people` and `judged` have the values of the labelled rows, and `others` the judge's values of the other
    rows. `clusters` has the cluster of each labelled row and then of each other row.
    """
    n, rest = len(people), len(others)
    weight = _weight(people, judged, others)
    rectified = people - weight * judged
    value = float(weight * others.mean() + rectified.mean())
    parts = [(rectified - rectified.mean()) / n, weight * (others - others.mean()) / rest]
    own = None
    if clusters is not None:
        parts = [part * left_out(of) for part, of in zip(parts, (clusters[:n], clusters[n:]), strict=True)]
        own = np.unique(clusters[:n], return_inverse=True)[1].astype(np.intp)
    fault = _fault(people, own)
    spread = clustered_variance(np.concatenate(parts), clusters)
    half = quantile(n if own is None else effective_clusters(own)) * spread.error
    every = np.concatenate([judged, others])
    return Corrected(
        name=name,
        judge=float(every.mean()),
        judge_interval=Mean(every).interval(n + rest, clusters),
        people=float(people.mean()),
        people_interval=Mean(people).interval(n, own),
        value=value,
        interval=(math.nan, math.nan) if fault else (value - half, value + half),
        labelled=n,
        unlabelled=rest,
        weight=weight,
        fault=fault,
    )


def _fault(people: Values, clusters: NDArray[np.intp] | None) -> str:
    kind = "rows" if clusters is None else "clusters"
    own = np.arange(len(people)) if clusters is None else clusters
    if effective_clusters(own) < LEAST_LABELLED - 0.5:
        return f"fewer than {LEAST_LABELLED} labelled {kind}" + _counted(own)
    values, counts = np.unique(people, return_counts=True)
    different = own[people != values[counts.argmax()]]
    if clusters is None and len(different) < LEAST_OF_EACH:
        return f"fewer than {LEAST_OF_EACH} labels differ from the most frequent one"
    if clusters is not None and effective_clusters(different) < LEAST_CLUSTERS_OF_EACH - 0.5:
        return (
            f"fewer than {LEAST_CLUSTERS_OF_EACH} clusters have labels that differ from the most frequent one"
            + _counted(different)
        )
    return ""


def _counted(clusters: NDArray[np.intp]) -> str:
    """Return how much clusters of unequal size count; empty for equal ones."""
    count, effective = len(np.unique(clusters)), effective_clusters(clusters)
    return f": {count} of unequal size count as {effective:.1f}" if effective < count - 0.5 else ""


def _weight(people: Values, judged: Values, others: Values) -> float:
    """Return the weight of least variance, between 0 and 1 (section 6 of the paper)."""
    n, rest = len(people), len(others)
    variance = float(np.var(np.concatenate([judged, others]), ddof=1)) * (1 + n / rest)
    if not variance:
        return 0.0
    covariance = float(((people - people.mean()) * (judged - judged.mean())).mean())
    return min(1.0, max(0.0, covariance / variance))
