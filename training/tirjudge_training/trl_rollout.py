"""Rollouts in the shape that TRL's `rollout_func` returns, for our trainer and for anybody's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tirjudge_environments import By, Episode, JudgeTask, Reward, Score, Trajectory
from tirjudge_training.grouping import Batch, Roller


@dataclass(frozen=True, slots=True)
class Row:
    """One rollout as the trainer sees it; `completion_ids`, `mask` and `logprobs` have one length, not 0."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    """1 for a token that the model wrote and that counts, 0 for the sandbox's and for fillers."""
    logprobs: tuple[float, ...]
    """As sampled; 0.0 where the sandbox wrote."""
    reward: float = 0.0
    advantage: float = 0.0


def row(trajectory: Trajectory, reward: float, advantage: float = 0.0) -> Row:
    """A trajectory with its segments joined; raises ValueError if it was rolled out without token ids."""
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for segment in trajectory.segments:
        by_model = segment.by is By.MODEL
        if segment.ids is None or (by_model and segment.logprobs is None):
            raise ValueError("training needs a generator that returns token ids and logprobs")
        ids += segment.ids
        mask += [int(by_model)] * len(segment.ids)
        logprobs += segment.logprobs if by_model and segment.logprobs else [0.0] * len(segment.ids)
    if not trajectory.prompt_ids or not ids:
        raise ValueError("training needs a trajectory with a prompt and at least one token")
    return Row(trajectory.prompt_ids, tuple(ids), tuple(mask), tuple(logprobs), reward, advantage)


def filler(token: int) -> Row:
    """The shortest row there is; its mask keeps it out of the loss and of the loss's denominator."""
    return Row((token,), (token,), (0,), (0.0,))


def batch_rows(batch: Batch, *, slots: int, size: int, blank: int) -> list[Row]:
    """`slots * size` rows: the kept groups, and fillers of the token `blank` for whatever cannot count.

    A rollout that stayed unscored is a filler too: it has no advantage.
    """
    rows = []
    for group in batch.kept:
        for trajectory, reward, advantage in zip(
            group.trajectories, group.rewards, group.advantages, strict=True
        ):
            if reward is None or advantage is None:
                rows.append(filler(blank))
            else:
                rows.append(row(trajectory, reward, advantage))
    return rows + [filler(blank)] * (slots * size - len(rows))


def rollout_output(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The dict that TRL's `rollout_func` returns; `reward` reaches a reward function under that name."""
    return {
        "prompt_ids": [list(row.prompt_ids) for row in rows],
        "completion_ids": [list(row.completion_ids) for row in rows],
        "logprobs": [list(row.logprobs) for row in rows],
        "env_mask": [list(row.mask) for row in rows],
        "reward": [row.reward for row in rows],
    }
