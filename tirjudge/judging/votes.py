"""Votes: what a verdict counts as wherever several become one (docs/judge.md has the table).

A guess is a verdict of which `decided` is False, where undecided comparisons are ties: it counts as a tie.
Several verdicts together are decided unless their guesses, taken the other way, could put another response
ahead, and a tie only if no guess could break it. A missing verdict is no vote of a sample or a model, leaves
several orders without a verdict, and is unknown on a criterion, never 0: aggregates are bounds, and decide
only what no answer could change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tirjudge.records.verdicts import JudgedCriterion

Best = tuple[int, ...]
"""The responses in first place: one is a choice, several are a tie, none is no verdict."""
_DIGITS = 9
"""Decimals of rounded aggregates, so that equal sums compare equal in any order of addition."""


def settled(
    outcome: Callable[[int | None], Best], count: int, parts: Iterable[bool | None]
) -> tuple[Best, bool | None]:
    """Return the verdict with guesses as ties, and whether it is decided whatever the guesses are.

    `outcome` combines the parts with every guess in favour of a response, of which there are `count`, or with
    every guess as a tie for None. `parts` says of each part with a verdict whether programs decided it. None
    if that is not known of a part, and no guess could change the verdict.
    """
    best, found = outcome(None), list(parts)
    if found and all(one is None for one in found):
        return best, None
    for favoured in range(count) if False in found else ():
        other = outcome(favoured)
        if other != best and (len(best) > 1 or not set(best) <= set(other)):
            return best, False
    return best, (None if None in found else True) if best else False


def all_decided(parts: Iterable[bool | None]) -> bool | None:
    """Return whether programs decided all parts of a verdict: False for an undecided part or no parts."""
    found = list(parts)
    if not found or False in found:
        return False
    return None if None in found else True


def of_orders(verdicts: Sequence[Best]) -> Best:
    """Return the verdict of all orders in which responses were shown; none if any has no verdict.

    Two orders that disagree name two responses, which is how position bias becomes a tie.
    """
    return tuple(sorted({index for best in verdicts for index in best})) if all(verdicts) else ()


def of_samples(verdicts: Sequence[Best], weights: Sequence[float] = ()) -> Best:
    """Return the response that most samples or models of a jury choose, by their weights; without them 1.

    Equal counts are a tie. A tie and a missing verdict are no vote. If no sample chose a single response, all
    verdicts are ties, and the first one stands.
    """
    votes: dict[int, float] = {}
    for best, weight in zip(verdicts, weights or [1.0] * len(verdicts), strict=True):
        if len(best) == 1:
            votes[best[0]] = round(votes.get(best[0], 0.0) + weight, _DIGITS)
    most = max(votes.values(), default=0.0)
    return tuple(sorted(one for one, sum in votes.items() if sum == most)) or next(filter(None, verdicts), ())


def highest(scores: Mapping[int, float], least: int) -> tuple[int, ...]:
    """Return the candidates with the highest score, sorted; empty unless `least` candidates have one."""
    if not scores or len(scores) < least:
        return ()
    top = max(scores.values())
    return tuple(sorted(index for index, score in scores.items() if score == top))


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


def aggregate(verdicts: Sequence[JudgedCriterion], count: int) -> Aggregate:
    """Combine the verdicts on all criteria of a row with `count` responses.

    The aggregate of a response is the weighted share of the criteria that it satisfies, and 0 if it does not
    satisfy a must-have. The highest aggregate is the choice, and equal highest ones are a tie. Raises
    ValueError for weights that add up to 0, which only an edited file has.
    """
    if not sum(one.weight for one in verdicts):
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


def settled_criteria(
    verdicts: Sequence[JudgedCriterion],
    guessed: Sequence[Collection[int]],
    parts: Sequence[bool | None],
    own: Aggregate,
) -> tuple[tuple[JudgedCriterion, ...], Aggregate, bool | None]:
    """Return the verdicts on criteria with guesses as ties, their aggregate, and whether that is decided.

    `guessed` has for each criterion the responses of which only a guess says whether they satisfy it, `parts`
    whether programs decided the verdict, and `own` is the aggregate with guesses as verdicts. An undecided
    aggregate keeps its first place, and only the scores that no guess can change. A single response, which
    cannot be a tie, keeps its guesses, and is decided if no guess can change its score.
    """
    count = len(verdicts[0].satisfied)

    def taken(share: Callable[[int], float | None]) -> tuple[JudgedCriterion, ...]:
        return tuple(
            one.model_copy(update={"satisfied": _replaced(one.satisfied, several, share)}) if several else one
            for one, several in zip(verdicts, guessed, strict=True)
        )

    def outcome(favoured: int | None) -> Best:
        if favoured is None:
            return tied.best
        return aggregate(taken(lambda index: float(index == favoured)), count).best

    known = [part for part, one in zip(parts, verdicts, strict=True) if one.satisfied != [None] * count]
    certain = aggregate(taken(lambda index: None), count)
    if count < 2:
        firm = None if known and all(one is None for one in known) else bool(certain.scores)
        return tuple(verdicts), own, firm and (None if None in known else True)
    shown = taken(lambda index: 1 / count)
    tied = aggregate(shown, count)
    _, decided = settled(outcome, count, known)
    return shown, Aggregate(own.best, certain.scores) if decided is False else tied, decided


def _replaced(
    satisfied: Sequence[float | None], guessed: Collection[int], share: Callable[[int], float | None]
) -> list[float | None]:
    """Return the shares of responses with others for those about which a verdict is a guess."""
    return [
        share(index) if index in guessed and one is not None else one for index, one in enumerate(satisfied)
    ]


def _bounds(verdicts: Sequence[JudgedCriterion], index: int) -> tuple[float, float]:
    """Return the lowest and the highest aggregate that a response may have."""
    required = [one.satisfied[index] for one in verdicts if one.must_have]
    if 0 in required:
        return 0.0, 0.0
    total = sum(one.weight for one in verdicts)
    known = [(one.weight, one.satisfied[index]) for one in verdicts]
    low = sum(weight * share for weight, share in known if share is not None) / total
    open_weight = sum(weight for weight, share in known if share is None) / total
    return (0.0 if None in required else round(low, _DIGITS), round(low + open_weight, _DIGITS))
