"""Trajectories near the token limit: DAPO's soft punishment, and its filter of cut trajectories."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.trajectories import bare_trajectory
from tirjudge_environments import (
    By,
    Episode,
    JudgeTask,
    Reward,
    Segment,
    StopReason,
    Trajectory,
    View,
)
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask, SampledBatch, ScoredRollouts
from tirjudge_training.rl.overlong import OverlongConfig, punished, punishment
from tirjudge_training.rl.trl_rollout import batch_rows

VIEW = View("AB", (0, 1))
TASK = JudgeTask(id="t", prompt="p", candidates=("a", "b"), label=0)


def trajectory(tokens: int, stop: StopReason = StopReason.VERDICT) -> Trajectory:
    """Return a trajectory of so many tokens, half of them a program's output."""
    half = tuple(range(5, 5 + tokens // 2))
    segments = (
        Segment(by=By.MODEL, text="x", ids=half, logprobs=(-0.5,) * len(half)),
        Segment(by=By.SANDBOX, text="y", ids=half),
    )
    return bare_trajectory(prompt_ids=(3, 4), segments=segments, stop=stop, verdict=None)


def rollouts(*trajectories: Trajectory, rewards: tuple[float, ...]) -> ScoredRollouts:
    return ScoredRollouts(
        FormattedTask("tir-pairwise", TASK),
        tuple(Episode(task=TASK, sample=0, trajectories=(one,)) for one in trajectories),
        tuple((Reward(reward, {"correct": reward}, right=True, teaches=True),) for reward in rewards),
        0,
    )


@pytest.mark.parametrize(
    ("tokens", "value"),
    [(0, 0.0), (16_384, 0.0), (17_408, -0.25), (18_432, -0.5), (20_480, -1.0), (20_481, -1.0)],
)
def test_the_punishment_is_dapos(tokens: int, value: float) -> None:
    """Section 4.1: 16,384 expected tokens, a cache of 4,096 and at most 20,480 tokens in all."""
    assert punishment(tokens, 20_480, OverlongConfig().cache) == value


def test_the_punishment_is_a_part_of_the_reward() -> None:
    before = rollouts(
        trajectory(60), trajectory(90), trajectory(80, StopReason.TOKEN_BUDGET), rewards=(1.0, 1.0, 0.0)
    )
    after = punished(before, OverlongConfig(punish=True, cache=20), limit=100)
    assert after.groups[0].rewards == [1.0, 0.5, -1.0]
    found = [score for views in after.scores for score in views if isinstance(score, Reward)]
    assert [one.parts["overlong"] for one in found] == [0.0, -0.5, -1.0]
    assert found[1].full(1.0), "supervised training learns from the format's own reward"
    assert punished(before, OverlongConfig(), limit=100) is before


def test_cut_trajectories_are_left_out_of_the_loss() -> None:
    """Their rewards stay in the mean: the other advantages do not change."""
    group = rollouts(trajectory(40), trajectory(40, StopReason.TOKEN_BUDGET), rewards=(1.0, 0.0)).groups[0]
    batch = SampledBatch((), (), 0, (group,))
    kept, masked = (batch_rows(batch, slots=1, size=2, blank=0, mask_cut=mask) for mask in (False, True))
    assert any(kept[1].mask)
    assert not any(masked[1].mask)
    assert masked[0] == kept[0]
    assert masked[0].advantage > 0


def test_a_cache_above_the_limit_is_refused() -> None:
    """The paper's cache does not fit into a small limit."""
    with pytest.raises(
        ValidationError, match=r"overlong\.cache = 4096 is more than max_tokens = 1000: .* 200"
    ):
        RlConfig(steps=1, max_tokens=1000, overlong=OverlongConfig(punish=True))
    RlConfig(steps=1, max_tokens=1000, overlong=OverlongConfig(punish=True, cache=200))
