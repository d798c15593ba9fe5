"""The stage of rejection sampling, which keeps the best right rollout per prompt for SFT."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from tirjudge.records.episodes import episode_record
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject
from tirjudge_environments import Episode, Reward
from tirjudge_environments.types import FrozenModel
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.rl.dynamic_sampling import Keep, ScoredRollouts, cheapest, full, written
from tirjudge_training.sft import Sample
from tirjudge_training.stages.base import SAMPLES, Run, SamplingStage, Size


class RejectionConfig(FrozenModel):
    """The settings of rejection sampling (TIR §4.3)."""

    prompts: int | None = Field(default=None, gt=0)
    """Number of training tasks; None is all tasks."""
    samples: int = Field(default=4, gt=0)
    """Rollouts per task, the paper's G."""
    rounds: int = Field(default=1, gt=0)
    """Rounds of the method `rejection`. Each round samples with the previous round's model and trains that
    model further (RAFT, arXiv 2304.06767)."""
    keep: Keep = "shortest"
    """The kept rollout among rollouts with the full reward: by tokens of the model, or by calls first."""
    reward: float = 1.0
    """The full reward, which every view must reach with a right verdict, without the terms of `reward_terms`:
    R = 1 is right, well formed and without an error."""


class Rejection(SamplingStage):
    """Samples on training prompts with the model of an earlier stage; each process takes its share."""

    config: RejectionConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tasks = run.data.prompts(self.config.prompts, self.seed)
        own = partial(row, config=self.config)
        self.sample(folder, run, tasks, own, file=SAMPLES, samples=self.config.samples, unit="prompts")
        return run.processes.first(lambda: summary(folder))

    def size(self, data: Data) -> Size:
        tasks = data.prompts(self.config.prompts, self.seed)
        samples = self.config.samples
        return Size(f"{len(tasks):,} prompts x {samples}", sampled=trajectories(data, tasks) * samples)


def row(rollouts: ScoredRollouts, config: RejectionConfig) -> JsonObject:
    """Return a prompt's row of `samples.jsonl`: the rewards of all rollouts, and the kept rollout."""
    # Stored even if nothing is kept, so that a resumed stage does not sample the prompt again.
    best = chosen(rollouts, config)
    kept = [] if best is None else [Sample.of(t) for t in rollouts.episodes[best].trajectories]
    return {
        "id": rollouts.formatted.task.id,
        "format": rollouts.formatted.format,
        "rewards": [
            [score.total if isinstance(score, Reward) else None for score in scores]
            for scores in rollouts.scores
        ],
        "kept": [{"ids": sample.ids, "labels": sample.labels} for sample in kept],
        "episode": None if best is None else episode_record(rollouts.episodes[best], rollouts.scores[best]),
    }


def chosen(rollouts: ScoredRollouts, config: RejectionConfig) -> int | None:
    """Return the index of the episode to keep, the first among equals; None if none has the full reward."""
    right = [i for i, scores in enumerate(rollouts.scores) if full(scores, config.reward)]
    best = cheapest([_cost(rollouts.episodes[i]) for i in right], config.keep)
    return None if best is None else right[best]


def summary(folder: RunFolder) -> JsonObject:
    """Return, per judge, the number of prompts and of prompts with a kept trajectory."""
    found: dict[str, dict[str, int]] = {}
    for one in folder.read(SAMPLES):
        counts = found.setdefault(one["format"], {"prompts": 0, "kept": 0})
        counts["prompts"] += 1
        counts["kept"] += bool(one["kept"])
    return {name: found[name] for name in sorted(found)}


def _cost(episode: Episode) -> tuple[int, int]:
    """Return the tokens that the model wrote in all views, and its calls."""
    return written(episode), sum(len(trajectory.calls) for trajectory in episode.trajectories)
