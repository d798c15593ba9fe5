"""The methods that compare pairs: round robin, knockout, pivot and Swiss pairing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from tirjudge.group_rewards.base import TIE, Comparison, Pair, PairMethod
from tirjudge.group_rewards.estimates import bradley_terry_shares, win_shares
from tirjudge_environments import derive_seed

LISTWISE = "listwise"
METHODS = {
    "round-robin": "every pair; n (n - 1) / 2 comparisons, fewer within a budget",
    "knockout": "winners meet until one is left; n - 1 comparisons",
    "pivot": "every member against one drawn member; n - 1 comparisons",
    "swiss": "members with similar scores meet, with Bradley-Terry rewards; log2(n) rounds of n / 2",
    LISTWISE: "all members in one question",
}
"""Name to description, for a group of n."""


def check_method(name: str) -> None:
    """Raise ValueError, in one line, for an unknown method."""
    if name not in METHODS:
        raise ValueError(f"no method {name!r}; there are {', '.join(METHODS)}")


def open_method(name: str) -> PairMethod:
    """Return the method of this name. Raises ValueError for any other name than a pairing method's."""
    match name:
        case "round-robin":
            return RoundRobin()
        case "knockout":
            return Knockout()
        case "pivot":
            return Pivot()
        case "swiss":
            return Swiss()
    raise ValueError(f"no method {name!r}; there are {', '.join(METHODS)}")


class RoundRobin:
    """Every pair once: n (n - 1) / 2 comparisons. The reward is the share of wins; a tie is half a win.

    The pairs make n - 1 rounds of n / 2 (for odd n: n rounds of (n - 1) / 2) in which everyone meets another
    opponent. Of `most` comparisons, as many whole rounds are made as fit.
    """

    def least(self, size: int) -> int:
        return _least_rounds(size) * (size // 2)

    def comparisons(self, size: int, most: int | None = None) -> int:
        return _rounds(size, most, _most_rounds(size)) * (size // 2)

    def pairs(self, size: int, most: int | None, seed: int, played: Sequence[Comparison]) -> tuple[Pair, ...]:
        if played:
            return ()
        circle: list[int | None] = [*_drawn(range(size), seed)]
        if size % 2:
            circle.append(None)
        pairs: list[Pair] = []
        for _ in range(_rounds(size, most, _most_rounds(size))):
            half = len(circle) // 2
            for one, other in zip(circle[:half], reversed(circle[half:]), strict=True):
                if one is not None and other is not None:
                    pairs.append((one, other))
            # The circle method: the first stays, all others move on by one place.
            circle = [circle[0], circle[-1], *circle[1:-1]]
        return tuple(pairs)

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        return win_shares(size, played)


class Knockout:
    """A drawn bracket in which winners meet until one is left: n - 1 comparisons.

    The reward is the share of a member's own comparisons that it won, so that it grows with the round in
    which the member lost. A tie is half a win for both, and lots decide who goes on; without a verdict lots
    decide too, and the comparison counts for neither. Byes, in the first round only, count for nothing.
    """

    def least(self, size: int) -> int:
        return size - 1

    def comparisons(self, size: int, most: int | None = None) -> int:
        return size - 1

    def pairs(self, size: int, most: int | None, seed: int, played: Sequence[Comparison]) -> tuple[Pair, ...]:
        out = {self._loser(one, seed) for one in played}
        left = [member for member in _drawn(range(size), seed) if member not in out]
        # As many meet as must lose for a power of two to be left.
        target = 2 ** math.ceil(math.log2(len(left))) // 2
        meeting = left[: 2 * (len(left) - target)] if target else []
        return tuple(zip(meeting[::2], meeting[1::2], strict=True))

    def _loser(self, one: Comparison, seed: int) -> int:
        if one.share is None or one.share == TIE:
            return _drawn(one.pair, seed, "lots")[0]
        return one.pair[0] if one.share == 0 else one.pair[1]

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        return win_shares(size, played)


class Pivot:
    """Every member against one member, the pivot, which the seed draws: n - 1 comparisons.

    The reward is 1, 1/2 or 0 for a win, a tie or a loss against the pivot; the pivot's own is its share of
    wins. This is the pairing of bootstrapped relative policy optimization (Writing-Zero, Jia et al. 2025).
    """

    def least(self, size: int) -> int:
        return size - 1

    def comparisons(self, size: int, most: int | None = None) -> int:
        return size - 1

    def pairs(self, size: int, most: int | None, seed: int, played: Sequence[Comparison]) -> tuple[Pair, ...]:
        if played:
            return ()
        pivot = _drawn(range(size), seed)[0]
        return tuple((member, pivot) for member in range(size) if member != pivot)

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        return win_shares(size, played)


class Swiss:
    """Rounds in which members with similar scores meet, none twice; with Bradley-Terry rewards.

    Without a budget there are log2(n) rounds, rounded up, of n / 2 comparisons, rounded down; within one, as
    many as fit, but no more than n / 2, rounded up. The score of a member during the rounds is its wins; a
    tie, a bye and a missing verdict are half a win. In an odd group one of the lowest members without a bye
    so far has one. The reward is the expected share of wins against all other members, see
    `bradley_terry_shares`: shares of wins alone would compare members that met opponents of other strengths.
    """

    def least(self, size: int) -> int:
        return _least_rounds(size) * (size // 2)

    def comparisons(self, size: int, most: int | None = None) -> int:
        return self._rounds(size, most) * (size // 2)

    def _rounds(self, size: int, most: int | None) -> int:
        if most is None:
            return max(math.ceil(math.log2(size)), _least_rounds(size))
        # Up to this number, a round without repeated pairs always exists: see `_pair`.
        return _rounds(size, most, (size + 1) // 2)

    def pairs(self, size: int, most: int | None, seed: int, played: Sequence[Comparison]) -> tuple[Pair, ...]:
        number = len(played) // (size // 2)
        if number >= self._rounds(size, most):
            return ()
        scores = [0.0] * size
        games = [0] * size
        for one in played:
            for member in one.pair:
                share = one.of(member)
                scores[member] += TIE if share is None else share
                games[member] += 1
        # A bye is a member of its own, `size`, which meets everyone at most once.
        byes = [(member, size) for member in range(size) for _ in range(number - games[member])]
        for member, _ in byes:
            scores[member] += TIE
        met = {frozenset(one.pair) for one in played} | {frozenset(pair) for pair in byes}
        ranked = sorted(_drawn(range(size), seed, number), key=lambda member: -scores[member])
        pairs: list[Pair] = []
        if size % 2:
            lowest = next(member for member in reversed(ranked) if frozenset((member, size)) not in met)
            ranked.remove(lowest)
            pairs.append((lowest, size))
            scores.append(-1.0)
        _pair(ranked, scores, met, pairs)
        return tuple(pair for pair in pairs if size not in pair)

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        return bradley_terry_shares(size, played)


def _pair(
    ranked: Sequence[int], scores: Sequence[float], met: set[frozenset[int]], pairs: list[Pair]
) -> None:
    """Add pairs of members that have not met, those with the closest scores first.

    Two members that are left over have met each other; they are exchanged with a pair of which each can meet
    one. There is such a pair as long as everyone has met less than half of the others: the two have at least
    N possible opponents together, N being even, and these are in at most (N - 2) / 2 pairs.
    """
    close = sorted(
        (pair for pair in combinations(ranked, 2) if frozenset(pair) not in met),
        key=lambda pair: abs(scores[pair[0]] - scores[pair[1]]),
    )
    alone = dict.fromkeys(ranked)
    for one, other in close:
        if one in alone and other in alone:
            del alone[one], alone[other]
            pairs.append((one, other))
    left = list(alone)
    for one, other in zip(left[::2], left[1::2], strict=True):
        options = [
            (index, (one, first), (other, second))
            for index, pair in enumerate(pairs)
            for first, second in (pair, pair[::-1])
            if not met & {frozenset((one, first)), frozenset((other, second))}
        ]
        index, *exchanged = min(
            options, key=lambda option: sum(abs(scores[a] - scores[b]) for a, b in option[1:])
        )
        pairs[index : index + 1] = exchanged


def _most_rounds(size: int) -> int:
    return size - 1 + size % 2


def _least_rounds(size: int) -> int:
    """Return the rounds after which everyone was compared: in an odd group one member sits out the first."""
    return 1 + size % 2


def _rounds(size: int, most: int | None, limit: int) -> int:
    """Return the number of rounds of size // 2 comparisons that fit into `most`, up to `limit`."""
    return limit if most is None else min(limit, most // (size // 2))


def _drawn(members: Sequence[int], seed: int, *key: int | str) -> list[int]:
    """Shuffle members, as a pure function of the arguments."""
    return sorted(members, key=lambda member: derive_seed(seed, *key, repr(sorted(members)), member))
