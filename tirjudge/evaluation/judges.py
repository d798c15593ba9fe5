"""Agreement of several judges on the same rows, or of the models of a jury, whether they are right or not."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from tirjudge.evaluation.calibration import class_of
from tirjudge.evaluation.judged_rows import JudgedRow, decision
from tirjudge.evaluation.people import NO_VERDICT
from tirjudge.evaluation.protocols.agreement import kappa
from tirjudge.evaluation.raters import alpha
from tirjudge.evaluation.scoring import Estimate
from tirjudge.statistics.clusters import cluster_codes, cluster_digest
from tirjudge.statistics.differences import fault_of
from tirjudge.statistics.estimators import Fitted, Mean, OfTable


@dataclass(frozen=True, slots=True)
class JudgesAgreement:
    """Agreement of judges over the rows that all have decided; a tie is a class of its own."""

    alpha: Estimate
    """Krippendorff's alpha of all judges (nominal)."""
    pairs: tuple[tuple[int, int, Estimate, Estimate], ...]
    """For every two judges, by their number: the share of equal verdicts, and Cohen's kappa."""
    clusters: int | None
    """Number of clusters, if some rows belong together."""


def jury_agreement(rows: Iterable[JudgedRow]) -> tuple[list[str], JudgesAgreement] | None:
    """Compare the verdicts of the models of a jury, after their names; None without rows that all decided."""
    found: dict[str, list[JudgedRow]] = {}
    for row in rows:
        for model, best in row.jury.items():
            found.setdefault(model, []).append(replace(row, votes=(), verdict=best))
    agreement = judges_agreement(list(found.values())) if len(found) > 1 else None
    return None if agreement is None else (list(found), agreement)


def judges_agreement(runs: Sequence[Iterable[JudgedRow]]) -> JudgesAgreement | None:
    """Compare the verdicts of several runs; None if no row with two responses is decided in all of them."""
    found: dict[tuple[str, str], list[int]] = {}
    clusters: dict[tuple[str, str], str] = {}
    for number, run in enumerate(runs):
        for row in run:
            key, verdict = (row.domain, row.id), class_of(decision(row))
            if (
                verdict != NO_VERDICT
                and row.candidates > 1
                # A row that an earlier run has not decided cannot be compared any more.
                and (number == 0 or len(found.get(key, ())) == number)
            ):
                found.setdefault(key, []).append(verdict)
                # A run without prompts does not say which rows belong together.
                clusters[key] = clusters.get(key) or row.cluster
    kept = [key for key, verdicts in found.items() if len(verdicts) == len(runs)]
    if not kept:
        return None
    classes = np.array([found[key] for key in kept], dtype=np.float64).T
    codes = cluster_codes(array("Q", (cluster_digest(clusters[key]) for key in kept)))

    def estimate(figure: Mean | OfTable | Fitted) -> Estimate:
        bounds = figure.interval(len(kept), codes)
        fault = fault_of(figure, clusters=codes) if math.isnan(bounds[0]) else ""
        return Estimate(figure.value, *bounds, n=len(kept), no_interval=fault)

    return JudgesAgreement(
        alpha=estimate(alpha(classes, "nominal")),
        pairs=tuple(
            (
                one,
                other,
                estimate(Mean((classes[one] == classes[other]).astype(np.float64))),
                estimate(kappa(classes[one], classes[other])),
            )
            for one, other in combinations(range(len(runs)), 2)
        ),
        clusters=None if codes is None else int(codes.max()) + 1,
    )
