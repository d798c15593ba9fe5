"""Rollouts in the shape that TRL's `rollout_func` returns, for our trainer and for anybody's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tirjudge_environments import Episode, JudgeTask, Reward, Score, Trajectory, Transcript, derive_seed
from tirjudge_training.advantages import Sigma, advantages
from tirjudge_training.grouping import Batch

if TYPE_CHECKING:
    from tirjudge_training.engine import Engine


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


def batch_rows(
    batch: Batch, *, slots: int, size: int, blank: int, sigma: Sigma = "sample", eta: float = 0.0
) -> list[Row]:
    """`slots * size` rows: the kept groups, and fillers of the token `blank` for whatever cannot count.

    A rollout that stayed unscored is a filler too: it has no advantage.
    """
    rows = []
    for group in batch.kept:
        scaled = advantages(group.rewards, sigma=sigma, eta=eta)
        for trajectory, reward, advantage in zip(group.trajectories, group.rewards, scaled, strict=True):
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


class JudgeRolloutFunc:
    """A `rollout_func` for a GRPOTrainer of one's own, with the judge's sandbox, budget and reward.

        with Engine(model, tokenizer, {"pairs": environment}, budget=..., sampling=...) as engine:
            judge = JudgeRolloutFunc(engine, "pairs", tasks)
            GRPOTrainer(
                model,
                reward_funcs=judge.reward,
                rollout_func=judge,
                train_dataset=Dataset.from_list(judge.dataset()),
                processing_class=tokenizer,
                ...
            ).train()

    A prompt of the dataset names one view of one task. A reward that links the views of a task is right
    wherever TRL's sampler puts them, since all views are rolled out for each: a format with several views
    costs that much more here than in our own trainer.
    """

    def __init__(self, engine: Engine, format: str, tasks: Sequence[JudgeTask], *, seed: int = 0) -> None:
        """`format` is the environment's name in `engine`; raises ValueError for two tasks of one id."""
        self._engine, self._format, self._seed = engine, format, seed
        self._views: dict[str, tuple[JudgeTask, int]] = {}
        environment = engine.environments[format]
        for task in tasks:
            for number, view in enumerate(environment.views(task)):
                prompt = f"{task.id} {view.name}"
                if prompt in self._views:
                    raise ValueError(f"two tasks with the id {task.id!r}")
                self._views[prompt] = (task, number)

    def dataset(self) -> list[dict[str, str]]:
        """The rows to train on."""
        return [{"prompt": prompt} for prompt in self._views]

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """TRL's local prompts, each repeated for its samples, to one row each.

        Raises RuntimeError for a rollout that cannot be scored: TRL has no place for one.
        """
        accelerator = trainer.accelerator
        seed = derive_seed(self._seed, trainer.state.global_step, accelerator.process_index)
        self._engine.refresh()
        rollout = self._engine.rollouts(seed)[self._format]

        async def every() -> list[Episode]:
            return await asyncio.gather(
                *(rollout.episode(self._views[prompt][0], sample) for sample, prompt in enumerate(prompts))
            )

        groups: dict[str, list[Episode]] = {}
        for prompt, episode in zip(prompts, self._engine.run(every()), strict=True):
            groups.setdefault(prompt, []).append(episode)

        async def scored() -> list[list[tuple[Score, ...]]]:
            return await asyncio.gather(*(rollout.score(group) for group in groups.values()))

        rows = {
            prompt: [
                self._row(prompt, episode, scores)
                for episode, scores in zip(groups[prompt], found, strict=True)
            ]
            for prompt, found in zip(groups, self._engine.run(scored()), strict=True)
        }
        self._engine.rest()
        return rollout_output([rows[prompt].pop(0) for prompt in prompts])

    @staticmethod
    def reward(reward: list[float], **columns: Any) -> list[float]:
        """The `reward_funcs` that belongs to it."""
        return reward

    def _row(self, prompt: str, episode: Episode, scores: Sequence[Score]) -> Row:
        _, view = self._views[prompt]
        score = scores[view]
        if not isinstance(score, Reward):
            raise RuntimeError(f"{prompt!r} cannot be scored: {score.reason}")
        return row(episode.trajectories[view], score.total)
