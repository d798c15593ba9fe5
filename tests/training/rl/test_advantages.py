"""Advantages, the paper's filter, and rewards that link views, against values computed otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import torch

from tirjudge_environments import (
    Completion,
    Environment,
    Episode,
    Finish,
    J1PaV,
    JudgeSession,
    JudgeTask,
    Message,
)
from tirjudge_environments.testing import fixed_sandbox
from tirjudge_training.rl.advantages import advantages, teaches
from tirjudge_training.rl.dynamic_sampling import FormattedTask, Group, ScoredRollouts


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


TASK = JudgeTask(id="t", prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0)
A, B = "<answer>[[A]]</answer>", "<answer>[[B]]</answer>"
ORDERS = [(A, B), (A, A), (B, B), (B, A)]
"""Four samples in both orders; response 0 is A in the first order and B in the second.

Two are right in AB (the first and the second), two in BA (the first and the third), and one in both.
"""
HALF = [0.8660254, 0.8660254, -0.8660254, -0.8660254]
ALTERNATE = [0.8660254, -0.8660254, 0.8660254, -0.8660254]
FIRST = [1.5, -0.5, -0.5, -0.5]


def groups(environment: Environment, samples: Sequence[tuple[str, str]]) -> list[Group]:
    """Return one group per view, from the judge's text in each view of each sample."""
    episodes = tuple(asyncio.run(played(environment, number, texts)) for number, texts in enumerate(samples))
    scores = environment.score(episodes, {})
    return ScoredRollouts(FormattedTask("judge", TASK), episodes, tuple(scores), 0).groups


async def played(environment: Environment, sample: int, texts: tuple[str, str]) -> Episode:
    trajectories = []
    for view, text in zip(environment.views(TASK), texts, strict=True):
        session = JudgeSession(environment, TASK, view, fixed_sandbox(), sample=sample)
        await session.step(Completion(text=text, finish=Finish.END))
        trajectories.append(session.trajectory)
    return Episode(TASK, sample, tuple(trajectories))


@pytest.mark.parametrize(
    ("consistency", "rewards", "expected"),
    [
        (False, [[1, 1, 0, 0], [1, 0, 1, 0]], [HALF, ALTERNATE]),
        (True, [[1, 0, 0, 0], [1, 0, 0, 0]], [FIRST, FIRST]),
    ],
)
def test_consistency_depends_on_both_orders_and_each_has_its_baseline(consistency, rewards, expected) -> None:
    views = groups(J1PaV(consistency=consistency), ORDERS)
    assert [group.view.name for group in views] == ["AB", "BA"]
    assert [group.rewards for group in views] == rewards
    for group, by_hand in zip(views, expected, strict=True):
        assert advantages(group.rewards) == pytest.approx(by_hand)
