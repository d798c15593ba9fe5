"""Rollouts in the shape that TRL's `rollout_func` returns, for our trainer and for anybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tirjudge_environments import Trajectory
from tirjudge_environments.transcript import Transcript
from tirjudge_training.grouping import Batch


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
    """Raises ValueError for a generator that tells no token ids or logprobs, and for an empty completion."""
    script = Transcript.of(trajectory)
    if script.logprobs is None or not script.completion_ids:
        raise ValueError("training needs logprobs and at least one token of every trajectory")
    return Row(script.prompt_ids, script.completion_ids, script.mask, script.logprobs, reward, advantage)


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
