"""Calibration: agreement of a judge with people, its variance, and the risk of verdicts kept by a confidence.

Risk is the share of wrong verdicts among the kept verdicts, coverage the share of rows that are kept
(El-Yaniv and Wiener 2010; Geifman and El-Yaniv 2017).
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tirjudge.data.rows import Row
from tirjudge.evaluation.judged_rows import JudgedRow, Vote, decision, sample_decision
from tirjudge.evaluation.people import NO_VERDICT, TIE, PeopleLabels, class_name, majority
from tirjudge.evaluation.protocols.agreement import kappa
from tirjudge.evaluation.raters import alpha
from tirjudge.evaluation.scoring import RESAMPLES, Values, central_interval
from tirjudge.judging.abstention import margin, vote_share
from tirjudge.records.verdicts import Confidence
from tirjudge.statistics.clusters import cluster_codes, cluster_digest, effective_clusters
from tirjudge.statistics.estimators import Mean
from tirjudge.statistics.proportions import Proportion
from tirjudge_environments.types import derive_seed

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class CalibratedRow:
    """One judged row with what people say about it."""

    id: str
    decision: int
    """The class of the judge's verdict; NO_VERDICT without one."""
    people: tuple[int | None, ...]
    """Each annotator's class; None for an annotator who did not label the row."""
    gold: int | None
    """The class of most annotators; None if there is none."""
    confidence: float | None
    """None without a verdict, and for a judge that does not give what the confidence is made of."""
    votes: tuple[Vote, ...]
    cluster: str = ""
    """What the row has in common with rows that depend on it, such as its prompt; empty for nothing."""


@dataclass(slots=True)
class CalibratedRows:
    """The labelled rows of a run, and what the judge says about the others."""

    annotators: tuple[str, ...]
    rows: list[CalibratedRow] = field(default_factory=list)
    unlabelled: list[CalibratedRow] = field(default_factory=list)
    """Rows that no annotator labelled."""
    counts: Counter[str] = field(default_factory=Counter)
    """Rows that are left out of all numbers or of some, by reason."""

    @classmethod
    def of(
        cls,
        run: Iterable[tuple[JudgedRow, Row]],
        labels: PeopleLabels,
        confidence: Confidence,
        name: str = "the run",
    ) -> CalibratedRows:
        """Join a run with labels, by each judged row's row in the file.

        Raises ValueError, in one line, if no row is labelled, or all labels name the same class.
        """
        found = cls(labels.annotators)
        position = -1
        for position, (row, own) in enumerate(run):
            people = labels.classes(own, row.candidates, position)
            if people is None or not any(one is not None for one in people):
                found.counts["without labels"] += 1
                nobody = (None,) * len(labels.annotators)
                found.unlabelled.append(replace(_calibrated(row, nobody, confidence), votes=()))
                continue
            found.rows.append(_calibrated(row, people, confidence))
        labels.check_length(position + 1, name)
        found.counts["labels of no row"] = labels.unused
        rows = found.rows
        if not rows:
            raise ValueError(
                f"no row of the run is labelled in {labels.name}: rows are joined by {labels.joined_by}"
            )
        found.counts["without a majority of the annotators"] = sum(row.gold is None for row in rows)
        found.counts["without a verdict"] = sum(row.decision == NO_VERDICT for row in rows)
        classes = {one for row in rows for one in row.people if one is not None}
        if len(classes) == 1:
            raise ValueError(
                f"{labels.name}: every label is {class_name(classes.pop())}, so that a judge that agrees "
                "cannot be told from one that always says the same: give labels of at least two classes"
            )
        return found


def with_reruns(
    run: Iterable[tuple[JudgedRow, Row]],
    reruns: Sequence[Mapping[tuple[str, str], JudgedRow]],
    counts: Counter[str],
) -> Iterator[tuple[JudgedRow, Row]]:
    """Yield the rows of a run with the votes of further runs, as further samples of each row.

    `reruns` have the rows by domain and id. A row that a rerun lacks is counted in `counts`, and keeps the
    votes that it has.
    """
    for row, own in run:
        votes = list(_said(row))
        others = [rerun[row.domain, row.id] for rerun in reruns if (row.domain, row.id) in rerun]
        counts["not in every rerun"] += len(others) < len(reruns)
        for other in others:
            start = 1 + max((vote.sample for vote in votes), default=-1)
            votes += [replace(vote, sample=start + vote.sample) for vote in _said(other)]
        # The recorded verdict is that of the first run alone.
        yield replace(row, votes=tuple(votes), verdict=None), own


def _said(row: JudgedRow) -> tuple[Vote, ...]:
    """Return the votes of a row; each is the tie that stands in place of a guess."""
    return tuple(replace(one, best=row.verdict or ()) for one in row.votes) if row.is_guess else row.votes


def class_of(best: Sequence[int]) -> int:
    """Return the class of the candidates in first place."""
    if not best:
        return NO_VERDICT
    return TIE if len(best) > 1 else best[0]


def _calibrated(row: JudgedRow, people: tuple[int | None, ...], confidence: Confidence) -> CalibratedRow:
    best = decision(row)
    return CalibratedRow(
        id=row.id,
        decision=class_of(best),
        people=people,
        gold=majority(people),
        confidence=_confidence(row, best, confidence) if best else None,
        votes=_said(row),
        cluster=row.cluster,
    )


def clusters_of(rows: Sequence[CalibratedRow]) -> NDArray[np.intp] | None:
    """Return the cluster of each row, numbered from 0; None if no two rows belong together."""
    return cluster_codes(array("Q", (cluster_digest(row.cluster) for row in rows)))


def _confidence(row: JudgedRow, best: Sequence[int], name: Confidence) -> float | None:
    if name == "evidence":
        return None if row.decided is None else float(row.decided)
    if name == "vote-share":
        return vote_share([vote.best for vote in row.votes], best)
    return margin([vote.scores for vote in row.votes])


JUDGE, MAJORITY = "judge", "majority"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two raters over the rows that both have rated."""

    first: str
    second: str
    agreement: Proportion
    by_chance: float
    """Agreement expected of independent raters with these base rates."""
    kappa: float
    """(agreement - by chance) / (1 - by chance), Cohen 1960; nan if both raters always say the same one."""
    interval: tuple[float, float]
    """95 % interval of kappa, by the delta method; nan if a class has too few rows."""


@dataclass(frozen=True, slots=True)
class BaseRates:
    """Shares of the classes in a rater's labels, which kappa depends on."""

    rater: str
    n: int
    shares: Mapping[str, float]


def agreements(rows: Sequence[CalibratedRow], annotators: Sequence[str]) -> list[Agreement]:
    """Return the agreement of the judge with each annotator and the majority, then of the annotators.

    A missing verdict is a class of its own, which agrees with nobody.
    """
    raters = _raters(rows, annotators)
    pairs = [(JUDGE, name) for name in raters if name != JUDGE] + list(combinations(annotators, 2))
    found = []
    for first, second in pairs:
        both = [
            (one, other, row)
            for one, other, row in zip(raters[first], raters[second], rows, strict=True)
            if one is not None and other is not None
        ]
        if both:
            one, other, rated = zip(*both, strict=True)
            found.append(_agreement(first, second, np.array([one, other], np.float64), clusters_of(rated)))
    return found


def alphas(rows: Sequence[CalibratedRow], annotators: Sequence[str]) -> dict[str, tuple[float, Interval]]:
    """Return Krippendorff's alpha of the annotators, without and with the judge, and its interval."""
    people = np.array([[math.nan if one is None else one for one in row.people] for row in rows], np.float64)
    judge = np.array([row.decision for row in rows], np.float64)
    clusters = clusters_of(rows)
    raters = {"the judge and the annotators": np.vstack([judge, people.T])}
    if len(annotators) > 1:
        raters["the annotators"] = people.T
    found = {name: alpha(classes, "nominal") for name, classes in raters.items()}
    return {name: (one.value, one.interval(len(rows), clusters)) for name, one in found.items()}


def base_rates(rows: Sequence[CalibratedRow], annotators: Sequence[str]) -> list[BaseRates]:
    """Return the shares of the classes of the judge, the annotators and their majority."""
    found = []
    for name, classes in _raters(rows, annotators).items():
        given = [one for one in classes if one is not None]
        # The candidates come first, then a tie, then a missing verdict.
        found_classes = sorted(set(given), key=lambda one: (one < 0, abs(one)))
        shares = {class_name(one): given.count(one) / len(given) for one in found_classes}
        found.append(BaseRates(name, len(given), shares))
    return found


def _raters(rows: Sequence[CalibratedRow], annotators: Sequence[str]) -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = {JUDGE: [row.decision for row in rows]}
    found |= {name: [row.people[place] for row in rows] for place, name in enumerate(annotators)}
    # The majority of one annotator is that annotator.
    return found | ({MAJORITY: [row.gold for row in rows]} if len(annotators) > 1 else {})


def _agreement(
    first: str, second: str, both: NDArray[np.float64], clusters: NDArray[np.intp] | None
) -> Agreement:
    one, other = both
    coefficient = kappa(one, other)
    agreed = ((one == other) & (one != NO_VERDICT)).astype(np.float64)
    return Agreement(
        first=first,
        second=second,
        agreement=Mean(agreed).proportion(clusters),
        by_chance=coefficient.by_chance,
        kappa=coefficient.value,
        interval=coefficient.interval(len(one), clusters),
    )


@dataclass(frozen=True, slots=True)
class Variance:
    """Verdicts of the same rows, repeated."""

    over: str
    """`reruns`: the samples of a row; `orders`: the orders of its responses."""
    accuracies: tuple[Proportion, ...]
    """Accuracy of each rerun, or of each place among the orders of a row."""
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
    """Return the variance over reruns and over orders, if the rows have several reruns or several orders.

    Rows need a majority label. A missing verdict is wrong, and differs from every verdict.
    """
    reruns = _variance("reruns", ((row, _by_sample(row)) for row in rows))
    orders = _variance("orders", ((row, _by_order(row)) for row in rows))
    return [one for one in (reruns, orders) if one is not None]


def _variance(over: str, repeated: Iterable[tuple[CalibratedRow, Sequence[int]]]) -> Variance | None:
    kept = [(row, classes) for row, classes in repeated if len(classes) > 1]
    if not kept:
        return None
    count = max(len(classes) for _, classes in kept)
    right = [[one == row.gold for one in classes] for row, classes in kept]
    accuracies = [
        _rate([(row, one[place]) for (row, _), one in zip(kept, right, strict=True) if len(one) > place])
        for place in range(count)
    ]
    return Variance(
        over=over,
        accuracies=tuple(accuracies),
        changed=_rate([(row, len(set(classes)) > 1) for row, classes in kept]),
        within_rows=float(np.mean([np.var(one, ddof=1) for one in right])),
    )


def _rate(outcomes: Sequence[tuple[CalibratedRow, bool]]) -> Proportion:
    """Return the share of rows with this outcome, with the interval of their clusters."""
    clusters = clusters_of([row for row, _ in outcomes])
    if clusters is None:
        return Proportion(sum(one for _, one in outcomes), len(outcomes))
    return Mean(np.array([one for _, one in outcomes], dtype=np.float64)).proportion(clusters)


def _by_sample(row: CalibratedRow) -> list[int]:
    samples = defaultdict(list)
    for vote in row.votes:
        samples[vote.sample].append(vote)
    return [class_of(sample_decision(samples[number])) for number in sorted(samples)]


def _by_order(row: CalibratedRow) -> list[int]:
    """Return the class of each vote of the first sample, whose orders are all different."""
    first = [vote for vote in row.votes if vote.sample == min(one.sample for one in row.votes)]
    return [class_of(vote.best) for vote in first] if len({vote.order for vote in first}) > 1 else []


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
    """95 % interval of AURC: percentiles of the bootstrap over rows or clusters; nan for fewer than 100."""
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
    # Rows are stored as they finish, and a resample is drawn by position.
    rows = sorted(rows, key=lambda row: row.id)
    confidence, wrong = _ordered(rows)
    if not len(confidence):
        raise ValueError("no labelled row has a verdict with this confidence")
    clusters = clusters_of([row for row in rows if _is_ordered(row)])
    units = np.arange(len(wrong)) if clusters is None else clusters
    members = np.split(np.argsort(units, kind="stable"), np.cumsum(np.bincount(units))[:-1])
    interval = math.nan, math.nan
    if effective_clusters(units) >= LEAST_RANKED - 0.5:
        draws = np.random.default_rng(seed).integers(len(members), size=(RESAMPLES, len(members)))
        drawn = (
            draws if clusters is None else (np.concatenate([members[one] for one in draw]) for draw in draws)
        )
        interval = central_interval([aurc(confidence[one], wrong[one]) for one in drawn])
    return Curve(
        points=tuple(points(rows)),
        n=len(rows),
        ordered=len(wrong),
        aurc=aurc(confidence, wrong),
        interval=interval,
        random=float(wrong.mean()),
        best=aurc(-wrong, wrong),
    )


def points(rows: Sequence[CalibratedRow]) -> list[Point]:
    """Return one point for each value of the confidence, from the highest on."""
    confidence, wrong = _ordered(rows)
    order = np.argsort(-confidence, kind="stable")
    values, total = confidence[order], np.cumsum(wrong[order])
    ends = np.flatnonzero(np.append(np.diff(values) != 0, True)[: len(values)])
    # Intervals by cluster need the kept rows themselves; without clusters running sums are enough.
    if clusters_of(rows) is not None:
        return [point(rows, float(values[end])) for end in ends]
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
    is_kept = [_is_ordered(row) and (row.confidence or 0.0) >= threshold for row in rows]
    outcomes = [(row, row.decision != row.gold) for row, one in zip(rows, is_kept, strict=True) if one]
    return Point(threshold, _rate(list(zip(rows, is_kept, strict=True))), _rate(outcomes))


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
    """Split rows by a hash of the seed and the row's cluster, or its id without one.

    A row stays in its half whatever else is in the file, and rows of one cluster stay together: a threshold
    is verified on rows that do not depend on the rows it was chosen on.
    """
    split: tuple[list[CalibratedRow], list[CalibratedRow]] = ([], [])
    for row in rows:
        split[derive_seed(seed, _HALVES, row.cluster or row.id) % 2].append(row)
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
        # Too few clusters have nan as their interval, and nan compares as false with everything.
        lowest=min(known, key=lambda one: (math.isnan(one.risk.interval[1]), one.risk.interval[1])),
    )


LEAST_SCORED = 50
"""Rows, or effective clusters of rows, below which the Brier score has no interval."""
LEAST_RANKED = 100
"""Rows, or effective clusters of rows, below which AURC has no interval."""
_BINS = 10
"""Intervals of equal width between 0 and 1, over which the calibration error is summed."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """Distance of a confidence between 0 and 1 from the share of right verdicts."""

    brier: float
    """Mean squared difference of confidence and outcome, 1 for a right verdict (Brier 1950)."""
    brier_interval: tuple[float, float]
    """95 % interval; nan for fewer than 50 rows or clusters."""
    n: int
    error: float
    """Expected calibration error over ten intervals of equal width (Guo et al. 2017). It has no interval:
    noise within the intervals moves it up, for the samples of a bootstrap more than for the rows."""


def reliability(rows: Sequence[CalibratedRow]) -> Reliability:
    """Return the reliability of vote shares, over rows with a verdict and a majority label."""
    confidence, wrong = _ordered(rows)
    right = 1 - wrong
    bins = np.searchsorted(np.linspace(0, 1, _BINS + 1)[1:-1], confidence)
    gaps = np.bincount(bins, weights=confidence - right, minlength=_BINS)
    clusters = clusters_of([row for row in rows if _is_ordered(row)])
    brier = Mean((confidence - right) ** 2, is_share=False)
    units = len(right) if clusters is None else effective_clusters(clusters) + 0.5
    interval = brier.interval(len(right), clusters) if units >= LEAST_SCORED else (math.nan, math.nan)
    return Reliability(brier.value, interval, len(right), float(np.abs(gaps).sum() / len(right)))


def _is_ordered(row: CalibratedRow) -> bool:
    return row.decision != NO_VERDICT and row.confidence is not None and math.isfinite(row.confidence)


def _ordered(rows: Sequence[CalibratedRow]) -> tuple[Values, Values]:
    """Return the known confidences of verdicts, and 1 for each wrong verdict among them."""
    kept = [row for row in rows if _is_ordered(row)]
    confidence = np.array([row.confidence for row in kept], dtype=np.float64)
    return confidence, np.array([row.decision != row.gold for row in kept], dtype=np.float64)
