"""The stages that select the best step of an RL stage, and measure the reported accuracy of a model."""

from __future__ import annotations

import shutil
from functools import partial

from tirjudge.console_text import counted
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonObject, read_lines
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.heldout import (
    SNAPSHOTS,
    VALIDATION,
    HeldoutConfig,
    best_steps,
    lines,
    measure,
    validated,
)
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.stages.base import MODEL, Disk, Run, Size, Stage


class Selection(Stage):
    """Selects the step of an RL stage with the most right answers; the later one among equals.

    TIR §4.3 chooses by held-out accuracy, on 5 % of the prompts (§5.1). The RL stage has validated its steps
    and kept a snapshot of the best.
    """

    stage: str
    """The name of the RL stage."""
    candidates: int
    """Maximum number of validated steps."""

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        """Copy the snapshot of the best step, or the last weights if there are no validation tasks."""
        counts = validated(read_lines(run.path / self.stage / VALIDATION))
        # A killed selection may have left a part of a copy.
        shutil.rmtree(folder.path / MODEL, ignore_errors=True)
        if not counts:
            shutil.copytree(run.path / self.stage / MODEL, folder.path / MODEL)
            return {"best": None, "n": 0, "correct": {}}
        best = best_steps(counts)[0]
        right, tasks = counts[best]
        shutil.copytree(run.path / self.stage / SNAPSHOTS / f"step-{best}", folder.path / MODEL)
        steps = f"{len(counts)} validated steps" if len(counts) > 1 else "the only validated step"
        run.say(f"step {best} is chosen from {steps}: {right} of {tasks} validation tasks right")
        correct = {str(step): right for step, (right, _) in sorted(counts.items())}
        return {"best": best, "n": tasks, "correct": correct}

    def size(self, data: Data) -> Size:
        return Size(f"the best of at most {self.candidates} validated steps")

    def disk(self) -> Disk:
        return Disk(models=1)


class Measurement(Stage):
    """Measures greedy answers to held-out tasks, which never train a model or choose a checkpoint."""

    config: HeldoutConfig
    rollout: RolloutConfig
    distributed = True
    measures = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tasks = run.data.heldout(self.config.n, self.config.seed)
        run.say(f"measures the judge on {counted(len(tasks), 'held-out task')}")
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
