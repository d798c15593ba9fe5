"""The stage that measures the reported accuracy of a model."""

from __future__ import annotations

from functools import partial

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.evaluation import HeldoutConfig, lines, measure
from tirjudge_training.rl.engine import RolloutConfig
from tirjudge_training.stages.base import Run, Size, Stage


class Measurement(Stage):
    """Measures greedy answers to held-out tasks, which never train a model or choose a checkpoint."""

    config: HeldoutConfig
    rollout: RolloutConfig
    distributed = True
    measures = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tasks = run.data.heldout(self.config.n, self.config.seed)
        run.say(f"{len(tasks)} tasks")
        results = measure(
            run.model(self.start),
            tasks,
            run.data.environments,
            self.config.rollout(self.rollout),
            enable_thinking=run.enable_thinking,
            dtype=run.dtype,
            reward_questions=partial(run.reward_questions, folder),
            folder=folder,
            say=run.say,
            processes=run.processes,
        )
        for line in lines(results):
            run.say(line)
        return results

    def size(self, data: Data) -> Size:
        tasks = data.heldout(self.config.n, self.config.seed)
        return Size(f"{len(tasks):,} tasks", sampled=trajectories(data, tasks))
