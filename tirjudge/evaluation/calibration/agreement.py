"""Agreement of raters: kappa with its parts, the base rates behind it, and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tirjudge.evaluation.calibration.people import NO_VERDICT, class_name
from tirjudge.evaluation.calibration.rows import CalibratedRow
from tirjudge.evaluation.protocols.agreement import cohen_kappa, confusion
from tirjudge.evaluation.scoring import RESAMPLES, central_interval
from tirjudge.statistics import Proportion

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
    """95 % interval of kappa: percentiles of the bootstrap over rows."""


@dataclass(frozen=True, slots=True)
class BaseRates:
    """Shares of the classes in a rater's labels, which kappa depends on."""

    rater: str
    n: int
    shares: Mapping[str, float]


def agreements(rows: Sequence[CalibratedRow], annotators: Sequence[str], *, seed: int) -> list[Agreement]:
    """Return the judge's agreement with each annotator and with the majority, then that of annotators.

    A missing verdict is a class of its own, which agrees with nobody.
    """
    raters = _raters(rows, annotators)
    pairs = [(JUDGE, name) for name in raters if name != JUDGE] + list(combinations(annotators, 2))
    found = []
    for first, second in pairs:
        both = [
            pair
            for pair in zip(raters[first], raters[second], strict=True)
            if pair[0] is not None and pair[1] is not None
        ]
        if both:
            found.append(_agreement(first, second, np.array(both, dtype=np.float64), seed))
    return found


def base_rates(rows: Sequence[CalibratedRow], annotators: Sequence[str]) -> list[BaseRates]:
    """Return the shares of the classes of the judge, the annotators and their majority."""
    found = []
    for name, classes in _raters(rows, annotators).items():
        given = [one for one in classes if one is not None]
        shares = {class_name(one): given.count(one) / len(given) for one in sorted(set(given), key=_place)}
        found.append(BaseRates(name, len(given), shares))
    return found


def _raters(rows: Sequence[CalibratedRow], annotators: Sequence[str]) -> dict[str, list[int | None]]:
    found: dict[str, list[int | None]] = {JUDGE: [row.decision for row in rows]}
    found |= {name: [row.people[place] for row in rows] for place, name in enumerate(annotators)}
    # The majority of one annotator is that annotator.
    return found | ({MAJORITY: [row.gold for row in rows]} if len(annotators) > 1 else {})


def _place(number: int) -> tuple[bool, int]:
    """Return a key that sorts the candidates first, then a tie, then a missing verdict."""
    return number < 0, abs(number)


def _agreement(first: str, second: str, both: NDArray[np.float64], seed: int) -> Agreement:
    one, other = both.T
    shares = confusion(one, other) / len(both)
    agreed = (one == other) & (one != NO_VERDICT)
    return Agreement(
        first=first,
        second=second,
        agreement=Proportion(float(agreed.sum()), len(both)),
        by_chance=float(shares.sum(axis=1) @ shares.sum(axis=0)),
        kappa=cohen_kappa(one, other),
        interval=_interval(shares, len(both), seed),
    )


def _interval(shares: NDArray[np.float64], n: int, seed: int) -> tuple[float, float]:
    """Return the bootstrap interval of kappa; nan if no resample has two classes.

    Resampling rows is drawing the counts of the pairs of classes from a multinomial distribution.
    """
    counts = np.random.default_rng(seed).multinomial(n, shares.ravel(), size=RESAMPLES)
    drawn = counts.reshape(RESAMPLES, *shares.shape) / n
    observed = drawn.trace(axis1=1, axis2=2)
    expected = (drawn.sum(axis=2) * drawn.sum(axis=1)).sum(axis=1)
    defined = expected < 1
    return central_interval((observed[defined] - expected[defined]) / (1 - expected[defined]))
