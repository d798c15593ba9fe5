"""Rewards from comparisons: shares of wins, and strengths of the Bradley-Terry model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tirjudge.group_rewards.base import Comparison

_PRIOR = 1.0
"""Games of every member, half won and half lost, against an opponent of strength 1."""
_ITERATIONS = 10_000
_CLOSE = 1e-10
"""Largest relative change of a strength at which the iteration ends."""


def win_shares(size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
    """Return each member's wins per comparison with a verdict, a tie being half a win; None without any."""
    won, judged = [0.0] * size, [0] * size
    for one in played:
        for member in one.pair:
            share = one.of(member)
            if share is not None:
                won[member] += share
                judged[member] += 1
    return tuple(wins / games if games else None for wins, games in zip(won, judged, strict=True))


def bradley_terry_shares(size: int, played: Sequence[Comparison]) -> tuple[float | None, ...]:
    """Return each member's expected share of wins against the others under the Bradley-Terry model.

    A member of strength s wins against one of strength t with probability s / (s + t). The strengths have the
    highest posterior probability, found by Hunter's minorization-maximization (2004, "MM algorithms for
    generalized Bradley-Terry models"): s becomes wins / sum of games / (s + t) over the opponents. A tie is
    half a win for both. Every member also wins and loses half a game against an opponent of strength 1, which
    keeps the strength of a member that won or lost everything finite, and connects members that were never
    compared. A member without any verdict gets None, and is no opponent.
    """
    judged = [one for one in played if one.share is not None]
    members = sorted({member for one in judged for member in one.pair})
    if not members:
        return (None,) * size
    place = {member: index for index, member in enumerate(members)}
    wins, games = np.full(len(members), _PRIOR / 2), np.zeros((len(members), len(members)))
    for one in judged:
        first, second = (place[member] for member in one.pair)
        games[first, second] += 1
        games[second, first] += 1
        wins[first] += one.of(one.pair[0]) or 0.0
        wins[second] += one.of(one.pair[1]) or 0.0
    strengths = np.ones(len(members))
    for _ in range(_ITERATIONS):
        expected = (games / (strengths[:, None] + strengths)).sum(axis=1) + _PRIOR / (strengths + 1)
        before, strengths = strengths, wins / expected
        if np.abs(strengths / before - 1).max() < _CLOSE:
            break
    chances = strengths[:, None] / (strengths[:, None] + strengths)
    np.fill_diagonal(chances, 0.0)
    shares = chances.sum(axis=1) / (len(members) - 1)
    rewards: list[float | None] = [None] * size
    for member, index in place.items():
        rewards[member] = float(shares[index])
    return tuple(rewards)
