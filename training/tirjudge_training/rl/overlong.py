"""Trajectories that reach the token limit, or come near it (DAPO, arXiv 2503.14476, section 3.4)."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from tirjudge_environments import Reward, Score, StopReason, Trajectory
from tirjudge_environments.types import FrozenModel
from tirjudge_training.rl.dynamic_sampling import ScoredRollouts

PART = "overlong"
"""The name of the punishment among the parts of a reward."""


class OverlongConfig(FrozenModel):
    """The treatment of trajectories near `rl.max_tokens` in RL; by default there is none (ours)."""

    mask: bool = False
    """Leave trajectories that were cut at the limit out of the loss. Their rewards count in their group."""
    punish: bool = False
    """Add a punishment from 0 to -1 to the reward, see `punishment`."""
    cache: int = Field(default=4096, gt=0)
    """The last tokens before the limit, in which the punishment grows; the paper's number, of 20,480."""


def punishment(tokens: int, limit: int, cache: int) -> float:
    """Return DAPO's Eq. 13 for a trajectory of so many tokens.

    It is 0 up to `limit - cache` tokens, -1 above `limit`, and linear between them.
    """
    return -1.0 if tokens > limit else min(0.0, (limit - cache - tokens) / cache)


def punished(rollouts: ScoredRollouts, config: OverlongConfig, limit: int) -> ScoredRollouts:
    """Return the rollouts of a task with the punishment in each reward, if it is on."""
    if not config.punish:
        return rollouts
    scores = tuple(
        tuple(
            _punished(score, trajectory, config, limit)
            for score, trajectory in zip(views, episode.trajectories, strict=True)
        )
        for views, episode in zip(rollouts.scores, rollouts.episodes, strict=True)
    )
    return replace(rollouts, scores=scores)


def _punished(score: Score, trajectory: Trajectory, config: OverlongConfig, limit: int) -> Score:
    if not isinstance(score, Reward):
        return score
    tokens = sum(len(segment.ids or ()) for segment in trajectory.segments)
    # A trajectory that was cut has no room for more tokens, and would have gone on above the limit.
    value = -1.0 if cut(trajectory) else punishment(tokens, limit, config.cache)
    return replace(
        score,
        total=score.total + value,
        parts={**score.parts, PART: value},
        core=score.total if score.core is None else score.core,
    )


def cut(trajectory: Trajectory) -> bool:
    """Return True if a trajectory ended at the token limit."""
    return trajectory.stop is StopReason.TOKEN_BUDGET
