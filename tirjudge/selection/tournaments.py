"""Tournaments: which members of a group are compared next, and what follows from the verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Protocol

from tirjudge.selection.strengths import TIE, Comparison, Members, bradley_terry_shares, win_shares
from tirjudge_environments import derive_seed

BEST_OF_N = {
    "pointwise": "every candidate scored alone; N judgments, ties by majority vote",
    "pairwise": "a knockout in pairs; N - 1 judgments",
    "listwise": "a knockout in groups (--group-size)",
    "listwise-all": "all candidates in one prompt",
    "round-robin": "every pair; N (N - 1) / 2 judgments, ties by majority vote",
}
"""Methods of best-of-N by name, with a description. The first three are those of TIR-Judge, Table 7."""
GROUP_REWARDS = {
    "round-robin": "every pair; n (n - 1) / 2 comparisons, fewer within a budget",
    "knockout": "winners meet until one is left; n - 1 comparisons",
    "pivot": "every member against one drawn member; n - 1 comparisons",
    "swiss": "members with similar scores meet, with Bradley-Terry rewards; log2(n) rounds of n / 2",
    "listwise": "all members in one question",
}
"""Methods of group rewards by name, with a description for a group of n."""


class Tournament(Protocol):
    """A way to choose the members that are compared, and to turn the verdicts into rewards.

    Tournaments are pure functions of their arguments, the seed included.
    """

    def least(self, size: int) -> int:
        """Return the fewest comparisons in which every member of a group of `size` takes part."""

    def following(
        self, size: int, most: int | None, seed: int, played: Sequence[Comparison]
    ) -> tuple[Members, ...]:
        """Return the members to compare next, all at once, after those `played`; none at the end."""

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        """Return each member's reward, from 0 to 1; None for a member without any verdict."""


def check_method(name: str) -> None:
    """Raise ValueError, in one line, for an unknown method of group rewards."""
    if name not in GROUP_REWARDS:
        raise ValueError(f"no method {name!r}; there are {', '.join(GROUP_REWARDS)}")


def open_tournament(name: str) -> Tournament:
    """Return the tournament of a group reward. Raises ValueError for any other name."""
    tournaments: dict[str, type[Tournament]] = {
        "round-robin": RoundRobin,
        "knockout": Knockout,
        "pivot": Pivot,
        "swiss": Swiss,
    }
    if name not in tournaments:
        raise ValueError(f"no method {name!r}; there are {', '.join(GROUP_REWARDS)}")
    return tournaments[name]()


class _ByWins:
    """Rewards each member by its share of wins."""

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        return win_shares(size, played)


class RoundRobin(_ByWins):
    """Every pair once: n (n - 1) / 2 comparisons. The reward is the share of wins; a tie is half a win.

    Best-of-N selects the most wins (JETTS, Zhou et al. 2025), a missing verdict being half a win for both.

    The pairs make n - 1 rounds of n / 2 (for odd n: n rounds of (n - 1) / 2) in which everyone meets another
    opponent. Of `most` comparisons, as many whole rounds are made as fit.
    """

    def least(self, size: int) -> int:
        return _least_rounds(size) * (size // 2)

    def following(
        self, size: int, most: int | None, seed: int, played: Sequence[Comparison]
    ) -> tuple[Members, ...]:
        if played:
            return ()
        circle: list[int | None] = [*_drawn(range(size), seed)]
        if size % 2:
            circle.append(None)
        pairs: list[Members] = []
        for _ in range(_rounds(size, most, size - 1 + size % 2)):
            half = len(circle) // 2
            for one, other in zip(circle[:half], reversed(circle[half:]), strict=True):
                if one is not None and other is not None:
                    pairs.append((one, other))
            # The circle method: the first stays, all others move on by one place.
            circle = [circle[0], circle[-1], *circle[1:-1]]
        return tuple(pairs)

    def first(self, size: int, seed: int, played: Sequence[Comparison]) -> Members:
        """Return the members with the most wins."""
        wins = [0.0] * size
        for one in played:
            for member in one.members:
                share = one.of(member)
                wins[member] += TIE if share is None else share
        return tuple(member for member in range(size) if wins[member] == max(wins))


class Knockout(_ByWins):
    """A drawn bracket in which winners meet until one is left; in pairs n - 1 comparisons.

    Lots decide who goes on after a tie, among the tied members, and without a verdict, among all. The reward
    is the share of a member's own comparisons that it won, so that it grows with the round in which the
    member lost. A comparison without a verdict counts for nobody, and neither does a bye; in pairs, byes are
    in the first round only. Larger groups differ in size by at most one. Source: Guo et al. 2025; TIR-Judge,
    Appendix E.
    """

    def __init__(self, group: int | None = 2) -> None:
        """`group` is 2 for pairs, more for lists, and None for all members at once.

        Raises ValueError for a group below 2.
        """
        if group is not None and group < 2:
            raise ValueError(f"a knockout needs groups of 2 candidates or more, not {group}")
        self._group = group

    def least(self, size: int) -> int:
        group = self._group or size
        if group == 2 or size < 2:
            return size - 1
        left = -(-size // group)
        # A group of one member passes without a comparison.
        return sum(len(one) > 1 for one in _groups(range(size), group)) + self.least(left)

    def following(
        self, size: int, most: int | None, seed: int, played: Sequence[Comparison]
    ) -> tuple[Members, ...]:
        left = self.first(size, seed, played)
        if self._group != 2:
            return tuple(one for one in _groups(left, self._group or size) if len(one) > 1)
        # As many meet as must lose for a power of two to be left.
        target = 2 ** math.ceil(math.log2(len(left))) // 2
        meeting = left[: 2 * (len(left) - target)] if target else ()
        return tuple(zip(meeting[::2], meeting[1::2], strict=True))

    def first(self, size: int, seed: int, played: Sequence[Comparison]) -> Members:
        """Return the members that have not lost, in the order of the bracket; at the end, one member."""
        out = {member for one in played for member in one.members if member != self._winner(one, seed)}
        return tuple(member for member in _drawn(range(size), seed) if member not in out)

    def _winner(self, one: Comparison, seed: int) -> int:
        best = one.best or one.members
        return best[0] if len(best) == 1 else _drawn(best, seed, "lots")[0]


class Pivot(_ByWins):
    """Every member against one member, the pivot, which the seed draws: n - 1 comparisons.

    The reward is 1, 1/2 or 0 for a win, a tie or a loss against the pivot; the pivot's own is its share of
    wins. This is the pairing of bootstrapped relative policy optimization (Writing-Zero, Jia et al. 2025).
    """

    def least(self, size: int) -> int:
        return size - 1

    def following(
        self, size: int, most: int | None, seed: int, played: Sequence[Comparison]
    ) -> tuple[Members, ...]:
        if played:
            return ()
        pivot = _drawn(range(size), seed)[0]
        return tuple((member, pivot) for member in range(size) if member != pivot)


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

    def _rounds(self, size: int, most: int | None) -> int:
        if most is None:
            return max(math.ceil(math.log2(size)), _least_rounds(size))
        # Up to this number, a round without repeated pairs always exists: see `_pair`.
        return _rounds(size, most, (size + 1) // 2)

    def following(
        self, size: int, most: int | None, seed: int, played: Sequence[Comparison]
    ) -> tuple[Members, ...]:
        number = len(played) // (size // 2)
        if number >= self._rounds(size, most):
            return ()
        scores = [0.0] * size
        games = [0] * size
        for one in played:
            for member in one.members:
                share = one.of(member)
                scores[member] += TIE if share is None else share
                games[member] += 1
        # A bye is a member of its own, `size`, which meets everyone at most once.
        byes = [(member, size) for member in range(size) for _ in range(number - games[member])]
        for member, _ in byes:
            scores[member] += TIE
        met = {frozenset(one.members) for one in played} | {frozenset(pair) for pair in byes}
        ranked = sorted(_drawn(range(size), seed, number), key=lambda member: -scores[member])
        pairs: list[Members] = []
        if size % 2:
            lowest = next(member for member in reversed(ranked) if frozenset((member, size)) not in met)
            ranked.remove(lowest)
            pairs.append((lowest, size))
            # Below every score, so that an exchange of pairs gives the bye to a member with few wins.
            scores.append(-1.0)
        _pair(ranked, scores, met, pairs)
        return tuple(pair for pair in pairs if size not in pair)

    def rewards(self, size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
        return bradley_terry_shares(size, played)


def _pair(
    ranked: Sequence[int], scores: Sequence[float], met: set[frozenset[int]], pairs: list[Members]
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


def _groups(members: Sequence[int], size: int) -> list[Members]:
    """Split into the fewest groups of at most `size`, whose sizes differ by at most one."""
    count = -(-len(members) // size)
    bounds = [len(members) * place // count for place in range(count + 1)]
    return [tuple(members[start:end]) for start, end in pairwise(bounds)]


def _least_rounds(size: int) -> int:
    """Return the rounds after which everyone was compared: in an odd group one member sits out the first."""
    return 1 + size % 2


def _rounds(size: int, most: int | None, limit: int) -> int:
    """Return the number of rounds of size // 2 comparisons that fit into `most`, up to `limit`."""
    return limit if most is None else min(limit, most // (size // 2))


def _drawn(members: Sequence[int], seed: int, *key: int | str) -> list[int]:
    """Shuffle members, as a pure function of the arguments."""
    return sorted(members, key=lambda member: derive_seed(seed, *key, repr(sorted(members)), member))
