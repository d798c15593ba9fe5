"""The verdicts on the criteria of a row, and the aggregate that follows from them.

Responses that were shown alone satisfy a criterion if their score is high enough. Responses that were shown
together are compared: the better one satisfies it, and a tie is shared. A criterion without a verdict is
unknown, never 0: aggregates are bounds, and decide only what no answer could change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tirjudge_environments import Criterion, StopReason

SATISFIED_FROM = 6.0
"""The default of `JudgeConfig.satisfied_from`: above the middle of the scales from 0 or 1 to 10."""
_DIGITS = 9
"""Digits to which aggregates are rounded, so that equal ones are equal whatever the order of the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriterionVerdict:
    """The verdict on one criterion."""

    criterion: Criterion
    satisfied: tuple[float | None, ...]
    """For each response 1 or 0, a share from 0 to 1 of a tie, or None without a verdict."""
    scores: Mapping[int, float]
    """Index of a response to its score, if the judge scored them."""
    satisfied_from: float | None
    """The lowest score that satisfies; None where the responses were compared."""
    stop: StopReason
    """VERDICT, or why a response has none."""
    detail: str = ""

    @classmethod
    def of(
        cls,
        criterion: Criterion,
        count: int,
        *,
        best: Sequence[int],
        scores: Mapping[int, float],
        satisfied_from: float | None,
        stop: StopReason,
        detail: str = "",
    ) -> CriterionVerdict:
        """Return the verdict on `count` responses.

        `satisfied_from` is the lowest score that satisfies, of responses that were shown alone; None for
        those that were shown together, of which `best` satisfy. No `best` is no verdict.
        """
        satisfied: tuple[float | None, ...] = (None,) * count
        if satisfied_from is not None:
            found = map(scores.get, range(count))
            satisfied = tuple(None if score is None else float(score >= satisfied_from) for score in found)
        elif best:
            satisfied = tuple(1 / len(best) if index in best else 0.0 for index in range(count))
        return cls(
            criterion=criterion,
            satisfied=satisfied,
            scores=scores,
            satisfied_from=satisfied_from,
            stop=stop,
            detail=detail,
        )


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The outcome of all criteria of a row."""

    best: tuple[int, ...]
    """Responses with the highest aggregate: one is a choice, several are a tie. Empty for a single response
    and where an unknown verdict could change it."""
    scores: Mapping[int, float]
    """Index of a response to its aggregate from 0 to 1, where no unknown verdict can change it."""

    def decided(self, count: int) -> bool:
        """Return True if no unknown verdict can change the outcome for `count` responses."""
        return bool(self.best) if count > 1 else bool(self.scores)


def aggregate(verdicts: Sequence[CriterionVerdict], count: int) -> Aggregate:
    """Combine the verdicts on all criteria of a row with `count` responses.

    The aggregate of a response is the weighted share of the criteria that it satisfies, and 0 if it does not
    satisfy a must-have. The highest aggregate is the choice, and equal highest ones are a tie. Raises
    ValueError for weights that add up to 0, which only an edited file has.
    """
    if not sum(one.criterion.weight for one in verdicts):
        raise ValueError("the weights of the criteria add up to 0")
    bounds = [_bounds(verdicts, index) for index in range(count)]
    scores = {index: low for index, (low, high) in enumerate(bounds) if low == high}
    if count < 2:
        return Aggregate((), scores)
    top = max(low for low, _ in bounds)
    within_reach = tuple(index for index, (_, high) in enumerate(bounds) if high >= top)
    # Several that may be first are a tie only if each is known.
    decided = len(within_reach) == 1 or all(index in scores for index in within_reach)
    return Aggregate(within_reach if decided else (), scores)


def _bounds(verdicts: Sequence[CriterionVerdict], index: int) -> tuple[float, float]:
    """Return the lowest and the highest aggregate that a response may have."""
    required = [one.satisfied[index] for one in verdicts if one.criterion.must_have]
    if 0 in required:
        return 0.0, 0.0
    total = sum(one.criterion.weight for one in verdicts)
    known = [(one.criterion.weight, one.satisfied[index]) for one in verdicts]
    low = sum(weight * share for weight, share in known if share is not None) / total
    open_weight = sum(weight for weight, share in known if share is None) / total
    return (
        0.0 if None in required else round(low, _DIGITS),
        round(low + open_weight, _DIGITS),
    )


def common_threshold(thresholds: Iterable[float | None]) -> float:
    """Return the `satisfied_from` of a row's criteria, which is an option of the run and the same for all.

    It is the default where the responses were compared.
    """
    return next((one for one in thresholds if one is not None), SATISFIED_FROM)
