"""The alternative annotator test of whether a judge may replace these annotators (Calderon et al. 2025).

Each annotator is left out in turn. On each row the judge and the annotator who is left out are compared by
their agreement with the other annotators. The judge wins against an annotator if a one-sided test says that
it is worse by less than epsilon, corrected for the number of annotators by Benjamini and Yekutieli (2001).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.calibration import CalibratedRow, clusters_of
from tirjudge.evaluation.people import NO_VERDICT
from tirjudge.evaluation.significance import below, false_discoveries
from tirjudge.statistics.clusters import left_out
from tirjudge.statistics.proportions import Proportion

EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2)
"""Margins that allow for the cost of people. The paper takes 0.2 for experts, 0.15 for skilled annotators and
0.1 for crowd workers."""
PASSES = 0.5
"""Share of the annotators that the judge must win against to replace them."""
LEAST_ANNOTATORS = 3
LEAST_INSTANCES = 30
"""Rows that an annotator must share with another one to be compared with."""


@dataclass(frozen=True, slots=True)
class AlternativeTest:
    """The outcome of the test for one judge."""

    annotators: tuple[str, ...]
    """Annotators with enough rows."""
    advantage: Proportion
    """rho: probability that the judge agrees with the others at least as well as the annotator left out."""
    wins: Mapping[float, float]
    """omega by epsilon: share of the annotators that the judge wins against; it passes from 0.5 on."""


def alternative_test(rows: Sequence[CalibratedRow], annotators: Sequence[str]) -> AlternativeTest | None:
    """Compare the judge with each annotator; None for fewer than three annotators with 30 rows each.

    A missing verdict agrees with nobody. Raises ValueError, in one line, without scipy.
    """
    kept = [row for row in rows if sum(one is not None for one in row.people) > 1]
    clusters = clusters_of(kept)
    wins, losses, given = (np.zeros((len(annotators), len(kept))) for _ in range(3))
    for place, row in enumerate(kept):
        for number, own in enumerate(row.people):
            if own is not None:
                others = [one for at, one in enumerate(row.people) if at != number and one is not None]
                judge = 0 if row.decision == NO_VERDICT else others.count(row.decision)
                wins[number, place] = judge >= others.count(own)
                losses[number, place] = others.count(own) >= judge
                given[number, place] = 1
    enough = given.sum(axis=1) >= LEAST_INSTANCES
    if enough.sum() < LEAST_ANNOTATORS:
        return None
    wins, losses, given = wins[enough], losses[enough], given[enough]
    beaten = {
        epsilon: false_discoveries(
            [
                below((lost - won)[shared > 0], epsilon, None if clusters is None else clusters[shared > 0])
                for won, lost, shared in zip(wins, losses, given, strict=True)
            ]
        )
        for epsilon in EPSILONS
    }
    return AlternativeTest(
        annotators=tuple(name for name, one in zip(annotators, enough, strict=True) if one),
        advantage=_advantage(wins, given, clusters),
        wins={epsilon: float(np.mean(found)) for epsilon, found in beaten.items()},
    )


def _advantage(
    wins: NDArray[np.float64], given: NDArray[np.float64], clusters: NDArray[np.intp] | None
) -> Proportion:
    """Return the mean over the annotators of the share of rows that the judge wins or ties."""
    rates = wins.sum(axis=1) / given.sum(axis=1)
    # What a row adds to the error of the mean of the rates, as if it were one credit among all rows.
    shares = ((wins - rates[:, None]) * given / given.sum(axis=1)[:, None]).mean(axis=0) * wins.shape[1]
    factors = 1.0 if clusters is None else left_out(clusters)
    return Proportion.of_influence(float(rates.mean()), shares / wins.shape[1] * factors, clusters)
