"""Rewards from comparisons: shares of wins, and strengths of the Bradley-Terry model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Members = tuple[int, ...]
"""Members of a group, by their places: two, or more where a list is compared."""

TIE = 0.5
"""The share of a win that each of two equal members gets."""
_PRIOR = 1.0
"""Games of every member, half won and half lost, against an opponent of strength 1."""
_ITERATIONS = 10_000
_CLOSE = 1e-10
"""Largest relative change of a strength at which the iteration ends."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more members of a group, and the verdict on them."""

    members: Members
    shares: tuple[float, ...] | None
    """Each member's share of the win: 1 and 0, or 1/2 for a tie of two. None without a verdict."""

    @classmethod
    def won_by(cls, members: Members, best: Sequence[int]) -> Comparison:
        """Return a comparison in which the members `best` share first place; empty without a verdict."""
        return cls(members, tuple((member in best) / len(best) for member in members) if best else None)

    @property
    def best(self) -> Members:
        """The members with the largest share; empty without a verdict."""
        if self.shares is None:
            return ()
        top = max(self.shares)
        return tuple(member for member, share in zip(self.members, self.shares, strict=True) if share == top)

    def of(self, member: int) -> float | None:
        """Return the share of a member of the comparison; None without a verdict."""
        return None if self.shares is None else self.shares[self.members.index(member)]


def win_shares(size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
    """Return each member's wins per comparison with a verdict, a tie being half a win; None without any."""
    won, judged = [0.0] * size, [0] * size
    for one in played:
        for member in one.members:
            share = one.of(member)
            if share is not None:
                won[member] += share
                judged[member] += 1
    return tuple(wins / games if games else None for wins, games in zip(won, judged, strict=True))


def bradley_terry_shares(size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
    """Return each member's expected share of wins against the others under the Bradley-Terry model.

    The strengths have the highest posterior probability. A tie is half a win for both. Every member also wins
    and loses half a game against an opponent of strength 1, which keeps the strength of a member that won or
    lost everything finite, and connects members that were never compared. A member without any verdict gets
    None, and is no opponent.
    """
    import numpy as np

    judged = [one for one in played if one.shares is not None]
    members = sorted({member for one in judged for member in one.members})
    if not members:
        return (None,) * size
    place = {member: index for index, member in enumerate(members)}
    wins = np.zeros((len(members), len(members)))
    for one in judged:
        first, second = (place[member] for member in one.members)
        wins[first, second] += one.of(one.members[0]) or 0.0
        wins[second, first] += one.of(one.members[1]) or 0.0
    found = strengths(wins, _PRIOR)
    chances = found[:, None] / (found[:, None] + found)
    np.fill_diagonal(chances, 0.0)
    shares = chances.sum(axis=1) / (len(members) - 1)
    rewards: list[float | None] = [None] * size
    for member, index in place.items():
        rewards[member] = float(shares[index])
    return tuple(rewards)


def strengths(wins: NDArray[np.float64], prior: float = 0.0) -> NDArray[np.float64]:
    """Return the members' strengths under the Bradley-Terry model, from an array of wins `[winner, loser]`.

    A member of strength s wins against one of strength t with probability s / (s + t). Hunter's
    minorization-maximization (2004, "MM algorithms for generalized Bradley-Terry models") finds the most
    likely strengths: s becomes wins / sum of games / (s + t) over the opponents. With a `prior`, every member
    also wins and loses half as many games against an opponent of strength 1; without one, the strengths are
    finite only if every member has won, over others if need be, against every other one.
    """
    import numpy as np

    games, won = wins + wins.T, wins.sum(axis=1) + prior / 2
    found = np.ones(len(wins))
    for _ in range(_ITERATIONS):
        expected = (games / (found[:, None] + found)).sum(axis=1) + prior / (found + 1)
        before, found = found, won / expected
        if np.abs(found / before - 1).max() < _CLOSE:
            break
    return found
