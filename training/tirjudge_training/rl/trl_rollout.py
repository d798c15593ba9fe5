"""Rollouts in the form of TRL's `rollout_func`, for our trainer and for any other GRPOTrainer."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tirjudge.generation.base import NEUTRAL
from tirjudge_environments import (
    Episode,
    JudgeTask,
    Reward,
    Score,
    StopReason,
    Trajectory,
    Transcript,
    Unscored,
    derive_seed,
)
from tirjudge_training.rl.advantages import Sigma, advantages
from tirjudge_training.rl.dynamic_sampling import SampledBatch
from tirjudge_training.rl.overlong import cut

if TYPE_CHECKING:
    from tirjudge_training.rl.rollout_engine import Engine


@dataclass(frozen=True, slots=True)
class RolloutTokens:
    """One rollout as token ids; `completion_ids`, `mask` and `logprobs` have the same length, at least 1."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    mask: tuple[int, ...]
    """1 for tokens that the model wrote and that count, 0 for others, such as program outputs."""
    logprobs: tuple[float, ...]
    """The sampler's logprobs; 0.0 where the mask is 0."""
    reward: float | None = 0.0
    """None for a rollout without a score, which TRL leaves out of the group's baseline."""
    advantage: float = 0.0


def rollout_tokens(
    trajectory: Trajectory, reward: float, advantage: float = 0.0, *, masked: int = 0
) -> RolloutTokens:
    """Return the tokens of a trajectory, of which the last `masked` tokens do not count.

    Raises ValueError if it is empty or has no ids or logprobs.
    """
    script = Transcript.of(trajectory)
    if script.logprobs is None or not script.completion_ids:
        raise ValueError("training needs logprobs and at least one token of every trajectory")
    counted = len(script.mask) - masked
    mask = script.mask[:counted] + (0,) * masked
    logprobs = script.logprobs[:counted] + (0.0,) * masked
    return RolloutTokens(script.prompt_ids, script.completion_ids, mask, logprobs, reward, advantage)


def filler(token: int, reward: float | None = 0.0) -> RolloutTokens:
    """Return the shortest possible row, masked out of the loss and of its denominator."""
    return RolloutTokens((token,), (token,), (0,), (0.0,), reward)


def batch_rows(
    batch: SampledBatch,
    *,
    slots: int,
    size: int,
    blank: int,
    sigma: Sigma = "sample",
    eta: float = 0.0,
    tool_calls: int | None = None,
    mask_cut: bool = False,
) -> list[RolloutTokens]:
    """Return `slots * size` rows: the kept groups, then fillers of the token `blank` for the empty slots.

    A rollout without a score becomes a filler too, since it has no advantage, as does a rollout that ended
    before its first turn, and with `mask_cut` a rollout that was cut at the token limit.

    A verdict that could not change the reward does not count if the trajectory had no tool call left of
    `tool_calls`, so that it could not have gone on instead.
    """
    rows = []
    for group in batch.kept:
        scaled = advantages(group.rewards, sigma=sigma, eta=eta)
        for trajectory, score, advantage in zip(group.trajectories, group.scores, scaled, strict=True):
            empty = not trajectory.segments or (mask_cut and cut(trajectory))
            if isinstance(score, Unscored) or advantage is None or empty:
                rows.append(filler(blank))
                continue
            spent = tool_calls is not None and len(trajectory.calls) >= tool_calls
            # A dialogue without room for its program's output ends with the program.
            settled = score.settled and spent and trajectory.stop is StopReason.VERDICT
            masked = len(trajectory.segments[-1].ids or ()) if settled else 0
            rows.append(rollout_tokens(trajectory, score.total, advantage, masked=masked))
    return rows + [filler(blank)] * (slots * size - len(rows))


def rollout_output(rows: Sequence[RolloutTokens]) -> dict[str, list[Any]]:
    """Return the dict that TRL expects of a `rollout_func`; reward functions receive its `reward`."""
    return {
        "prompt_ids": [list(row.prompt_ids) for row in rows],
        "completion_ids": [list(row.completion_ids) for row in rows],
        "logprobs": [list(row.logprobs) for row in rows],
        "env_mask": [list(row.mask) for row in rows],
        "reward": [row.reward for row in rows],
    }


_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "top_k": (0, None),
    "min_p": (0.0, None),
    "repetition_penalty": (1.0, None),
    "generation_kwargs": (None, {}),
}
"""TRL's sampling parameters that the engine does not have, with the values that change nothing."""
_PATIENCE = 3
"""The consecutive calls without any rollout that did not fail after which `JudgeRolloutFunc` gives up."""


class JudgeRolloutFunc:
    """A `rollout_func` for your own GRPOTrainer, with the judge's sandbox, budget and reward.

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

    A prompt of the dataset names one view of one task. Rewards that link the views of a task are correct
    wherever TRL's sampler places them, because all views are rolled out for each prompt; a format with n
    views therefore costs n times as much here as in our own trainer.

    A rollout that cannot be scored, because its prompt is too long or its sandbox failed, is masked and has
    the reward None, which TRL leaves out of the group. A warning says how many there are, and why the first.
    """

    def __init__(self, engine: Engine, format: str, tasks: Sequence[JudgeTask], *, seed: int = 0) -> None:
        """`format` is the environment's name in `engine`; raises ValueError for two tasks with one id."""
        self._engine, self._format, self._seed = engine, format, seed
        self._failing = 0
        self._views: dict[str, tuple[JudgeTask, int]] = {}
        environment = engine.environments[format]
        # TRL passes prompts as strings, so the names of task and view serve as the prompt.
        for task in tasks:
            for number, view in enumerate(environment.views(task)):
                prompt = f"{task.id} {view.name}"
                if prompt in self._views:
                    raise ValueError(f"two tasks with the id {task.id!r}")
                self._views[prompt] = (task, number)

    def dataset(self) -> list[dict[str, str]]:
        """Return the rows of the training dataset."""
        return [{"prompt": prompt} for prompt in self._views]

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Roll out this process's prompts, each repeated for its samples; return one row per prompt.

        Raises ValueError if TRL's sampling parameters are not the engine's, and RuntimeError if the sandbox
        or the generator fails in every rollout of three calls in a row.
        """
        self._require_one_sampling(trainer.args)
        accelerator = trainer.accelerator
        # Positions are counted within a process: without its index, two processes with one prompt at the same
        # position would sample the same rollout.
        seed = derive_seed(self._seed, trainer.state.global_step, accelerator.process_index)
        self._engine.refresh()  # the trainer has changed the weights since the last call
        rollout = self._engine.rollouts(seed)[self._format]

        # The position numbers the samples, so that repeated prompts get different seeds.
        async def every() -> list[Episode]:
            return await asyncio.gather(
                *(rollout.episode(self._views[prompt][0], sample) for sample, prompt in enumerate(prompts))
            )

        groups: dict[str, list[Episode]] = {}
        for prompt, episode in zip(prompts, self._engine.run(every()), strict=True):
            groups.setdefault(prompt, []).append(episode)

        # Scored by group: some rewards compare the rollouts of a task.
        async def scored() -> list[list[tuple[Score, ...]]]:
            return await asyncio.gather(*(rollout.score(group) for group in groups.values()))

        outcomes = {
            prompt: [
                (episode.trajectories[view], scores[view])
                for episode, scores in zip(groups[prompt], found, strict=True)
            ]
            for prompt, found in zip(groups, self._engine.run(scored()), strict=True)
            for view in [self._views[prompt][1]]
        }
        self._engine.rest()
        # In the order of TRL's prompts, which repeats each prompt for its samples.
        rolled_out = [(prompt, *outcomes[prompt].pop(0)) for prompt in prompts]
        self._report_unscored(rolled_out)
        blank = trainer.processing_class.eos_token_id
        return rollout_output(
            [
                rollout_tokens(trajectory, score.total)
                if isinstance(score, Reward) and trajectory.segments
                else filler(blank, reward=score.total if isinstance(score, Reward) else None)
                for _, trajectory, score in rolled_out
            ]
        )

    @staticmethod
    def reward(reward: list[float | None], **columns: Any) -> list[float | None]:
        """Return the rewards of the rollouts; pass this method as `reward_funcs`."""
        return reward

    def _require_one_sampling(self, args: Any) -> None:
        """Refuse two distributions: TRL computes the probabilities of tokens under its own parameters."""
        own = self._engine.sampling.parameters
        for name, ours in own.items():
            # TRL's None leaves a parameter out.
            theirs = NEUTRAL[name] if (given := getattr(args, name)) is None else given
            if ours != theirs:
                raise ValueError(
                    f"the engine samples with {name} = {ours:g}, and TRL trains with {theirs:g}: give both "
                    f"the same, as in Engine(..., sampling=Sampling({name}={theirs:g})) or "
                    f"GRPOConfig({name}={ours:g})"
                )
        for name in _WITHOUT_EFFECT.keys() - own.keys():
            if (theirs := getattr(args, name)) not in _WITHOUT_EFFECT[name]:
                raise ValueError(
                    f"GRPOConfig({name}={theirs!r}) has no effect on these rollouts: leave it out"
                )

    def _report_unscored(self, rolled_out: Sequence[tuple[str, Trajectory, Score]]) -> None:
        """Warn of rollouts without a score, and raise RuntimeError if they keep failing."""
        unscored = [(prompt, score.reason) for prompt, _, score in rolled_out if isinstance(score, Unscored)]
        # A prompt that is too long is a mistake in one row, and no reason to end the run.
        down = all(trajectory.stop.down for _, trajectory, _ in rolled_out)
        self._failing = self._failing + 1 if down else 0
        if not unscored:
            return
        (prompt, reason), of = unscored[0], len(rolled_out)
        if self._failing == _PATIENCE:
            raise RuntimeError(f"all rollouts of {_PATIENCE} batches in a row failed: {reason}")
        warnings.warn(
            f"{len(unscored)} of {of} rollouts are left out (first: {prompt!r}: {reason})", stacklevel=2
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings about TRL's own code and about the experimental interface used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are using 'rollout_func'")
        warnings.filterwarnings("ignore", message=r".*gradient_checkpointing\w*` is deprecated")
        yield
