"""Advantages against a plain torch computation, and the paper's filter."""

from __future__ import annotations

import pytest
import torch

from tirjudge_training.rl.advantages import advantages, teaches


def test_advantages_equal_an_independent_computation() -> None:
    rewards = [1.0, 0.0, 0.1, 0.0, 1.0, 0.0, 0.0, 0.1]
    tensor = torch.tensor(rewards, dtype=torch.float64)
    expected = (tensor - tensor.mean()) / tensor.std(unbiased=True)
    assert advantages(rewards) == pytest.approx(expected.tolist(), abs=1e-12)


def test_judgelrms_advantages_equal_an_independent_computation() -> None:
    """JudgeLRM's Eq. 6 and 7: the population's standard deviation, and eta = 1e-6."""
    rewards = [1.5, -0.5, 1.5, 0.25]
    tensor = torch.tensor(rewards, dtype=torch.float64)
    expected = (tensor - tensor.mean()) / (((tensor - tensor.mean()) ** 2).mean().sqrt() + 1e-6)
    assert advantages(rewards, sigma="population", eta=1e-6) == pytest.approx(expected.tolist(), abs=1e-12)
    assert advantages([1.0] * 4, sigma="population", eta=1e-6) == [0.0] * 4


def test_an_unscored_rollout_is_excluded_from_the_baseline() -> None:
    assert advantages([1.0, None, 0.0, 0.0]) == pytest.approx(
        [1.1547005, None, -0.5773503, -0.5773503], abs=1e-6
    )
    assert advantages([None, None]) == [None, None]


@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_a_group_with_equal_rewards_has_no_advantage(reward: float) -> None:
    assert advantages([reward] * 3) == [0.0] * 3
    assert advantages([reward]) == [0.0]


@pytest.mark.parametrize(
    ("correct", "rewards", "kept"),
    [
        ([1, 1, 1, 1], [1.0, 0.1, 1.0, 1.0], False),
        ([0, 0, 0, 0], [0.0, 0.0, 0.0, 0.0], False),
        ([1, 0, 0, 0], [0.1, 0.0, 0.0, 0.0], True),
        ([1, 1, 1, 0], [1.0, 1.0, 1.0, 0.0], True),
        ([], [], False),
    ],
)
def test_the_paper_filters_on_correctness(correct: list[float], rewards: list[float], kept: bool) -> None:
    assert teaches(correct, rewards, "correctness") is kept


def test_filtering_on_reward_is_an_option() -> None:
    assert teaches([1, 1], [1.0, 0.1], "reward")
    assert not teaches([1, 1], [1.0, 1.0], "reward")
    assert teaches([1, 1], [1.0, 1.0], "none")
