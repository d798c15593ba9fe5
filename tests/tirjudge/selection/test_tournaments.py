"""Methods of group rewards: their numbers of comparisons, ties, missing verdicts and Bradley-Terry scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from scipy.optimize import minimize

from tirjudge.selection.strengths import Comparison, bradley_terry_shares
from tirjudge.selection.tournaments import open_tournament

FORMULAS: dict[str, Callable[[int], int]] = {
    "round-robin": lambda n: math.comb(n, 2),
    "knockout": lambda n: n - 1,
    "pivot": lambda n: n - 1,
    "swiss": lambda n: math.ceil(math.log2(n)) * (n // 2),
}
"""The numbers of comparisons that docs/group-rewards.md gives."""
SHARES = (0.0, 0.5, 1.0, None)


def play(
    name: str,
    size: int,
    verdict: Callable[[int, int], float | None],
    *,
    most: int | None = None,
    seed: int = 0,
) -> list[list[Comparison]]:
    """Return the comparisons of each round."""
    method, rounds = open_tournament(name), list[list[Comparison]]()
    while pairs := method.following(size, most, seed, [one for played in rounds for one in played]):
        rounds.append([compared(pair, verdict(*pair)) for pair in pairs])
    return rounds


def compared(pair: tuple[int, ...], share: float | None) -> Comparison:
    return Comparison(pair, None if share is None else (share, 1 - share))


def all_of(rounds: list[list[Comparison]]) -> list[Comparison]:
    return [one for played in rounds for one in played]


def stronger(first: int, second: int) -> float:
    """Return the verdict of a perfect judge: the higher number wins."""
    return float(first > second)


@pytest.mark.parametrize("name", FORMULAS)
def test_the_number_of_comparisons_is_the_documented_one(name: str) -> None:
    for size in (*range(2, 18), 31, 32, 64):
        rng = Random(size)
        played = all_of(play(name, size, lambda *_, rng=rng: rng.choice(SHARES), seed=size))
        assert len(played) == FORMULAS[name](size)
        assert len({frozenset(one.members) for one in played}) == len(played), "no pair is asked twice"
        assert {member for one in played for member in one.members} == set(range(size))


@pytest.mark.parametrize("name", ["round-robin", "swiss"])
@pytest.mark.parametrize("size", [2, 3, 5, 8, 13, 16])
def test_within_a_budget_whole_rounds_compare_everyone(name: str, size: int) -> None:
    method, of_a_round = open_tournament(name), size // 2
    assert method.least(size) == of_a_round * (2 if size % 2 else 1)
    for most in range(method.least(size), math.comb(size, 2) + 2):
        rng = Random(most)
        played = all_of(play(name, size, lambda *_, rng=rng: rng.choice(SHARES), most=most))
        rounds = min(most // of_a_round, math.ceil(size / 2) if name == "swiss" else size - 1 + size % 2)
        assert len(played) == rounds * of_a_round
        assert len({frozenset(one.members) for one in played}) == len(played)
        games = [sum(member in one.members for one in played) for member in range(size)]
        assert max(games) - min(games) <= size % 2, "only byes make a difference"
        assert min(games) > 0


def test_every_round_robin_reward_is_the_share_of_wins() -> None:
    rewards = open_tournament("round-robin").rewards(4, all_of(play("round-robin", 4, stronger)))
    assert rewards == (0, 1 / 3, 2 / 3, 1)


@pytest.mark.parametrize("size", [2, 5, 8, 13])
def test_a_knockout_ends_with_the_best(size: int) -> None:
    rounds = play("knockout", size, stronger)
    assert [len(played) for played in rounds[1:]] == [2**power for power in range(len(rounds) - 2, -1, -1)]
    rewards = open_tournament("knockout").rewards(size, all_of(rounds))
    assert rewards.index(1.0) == size - 1
    assert rewards.count(1.0) == 1
    for played in rounds:
        for one in played:
            winner, loser = max(one.members), min(one.members)
            assert (rewards[winner] or 0) > (rewards[loser] or 0) or (rewards[loser], winner) != (0, size - 1)
    if size == 8:
        # Losers of the first round, of the second and of the final, and the winner.
        assert sorted(reward or 0 for reward in rewards) == [0, 0, 0, 0, 1 / 2, 1 / 2, 2 / 3, 1]


def test_everyone_meets_the_pivot() -> None:
    played = all_of(play("pivot", 5, stronger, seed=3))
    (pivot,) = set.intersection(*(set(one.members) for one in played))
    rewards = open_tournament("pivot").rewards(5, played)
    assert [reward for member, reward in enumerate(rewards) if member != pivot] == [
        float(member > pivot) for member in range(5) if member != pivot
    ]
    assert rewards[pivot] == pivot / 4


def test_swiss_rounds_pair_equal_scores() -> None:
    for seed in range(20):
        first, second, third = play("swiss", 8, stronger, seed=seed)
        winners = {max(one.members) for one in first}
        assert all(len(winners & set(one.members)) != 1 for one in second)
        twice = winners & {max(one.members) for one in second}
        assert len(twice) == 2
        assert twice in [set(one.members) for one in third]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_tie_is_half_a_win_for_both(name: str) -> None:
    played = all_of(play(name, 6, lambda *_: 0.5))
    assert open_tournament(name).rewards(6, played) == pytest.approx([0.5] * 6)


@pytest.mark.parametrize("name", FORMULAS)
def test_a_missing_verdict_has_no_influence_on_any_reward(name: str) -> None:
    rng = Random(1)
    silent = 4

    def verdict(first: int, second: int) -> float | None:
        return None if silent in (first, second) else rng.choice((0.0, 0.5, 1.0))

    method = open_tournament(name)
    for seed in range(8):
        played = all_of(play(name, 6, verdict, seed=seed))
        rewards = method.rewards(6, played)
        heard = {member for one in played if one.shares is not None for member in one.members}
        assert [reward is not None for reward in rewards] == [member in heard for member in range(6)]
        assert rewards[silent] is None
        without = [one for one in played if one.shares is not None]
        assert method.rewards(6, without) == rewards


def test_bradley_terry_scores_are_those_of_a_general_optimizer() -> None:
    rng = Random(5)
    for size in (2, 5, 9):
        played = all_of(play("swiss", size, lambda *_: rng.choice((0.0, 0.5, 1.0)), seed=size))

        def loss(log_strengths: np.ndarray, played: list[Comparison] = played) -> float:
            """Return the negative log posterior, with half a win and half a loss against strength 1."""
            total = 0.0
            for one in played:
                gap = log_strengths[one.members[0]] - log_strengths[one.members[1]]
                share = one.of(one.members[0]) or 0.0
                total += share * np.logaddexp(0, -gap) + (1 - share) * np.logaddexp(0, gap)
            return float(
                total + 0.5 * (np.logaddexp(0, log_strengths) + np.logaddexp(0, -log_strengths)).sum()
            )

        found = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-9}).x
        expected = [
            np.mean(
                [1 / (1 + math.exp(found[other] - found[member])) for other in range(size) if other != member]
            )
            for member in range(size)
        ]
        assert bradley_terry_shares(size, played) == pytest.approx(expected, abs=1e-5)
