"""After RL: the checkpoint that is best on validation prompts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training import checkpoints, models
from tirjudge_training.data import Data, trajectories
from tirjudge_training.engine import RolloutConfig
from tirjudge_training.heldout import correct, measure
from tirjudge_training.rl_config import RlConfig
from tirjudge_training.rl_stage import CHECKPOINTS
from tirjudge_training.stages.base import MODEL, Run, Size, Stage


class ValidationConfig(BaseModel):
    """How checkpoints are compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(default=100, gt=0)
    """Tasks of each judge, at most; a checkpoint is measured greedily on all of them (ours)."""


class Selection(Stage):
    """Of an RL stage's checkpoints the one with the most right answers; of equals the later one.

    TIR §4.3 chooses by held-out accuracy, on 5 % of the prompts (§5.1).
    """

    stage: str
    """The RL stage."""
    candidates: int
    """Checkpoints that it leaves."""
    config: ValidationConfig
    rollout: RolloutConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        draws = run.data.validation(self.config.n)
        counts = {}
        for checkpoint in checkpoints.marked(run.path / self.stage / CHECKPOINTS):
            step = checkpoints.step_of(checkpoint)
            found = measure(
                str(checkpoint),
                draws,
                run.data.environments,
                self.rollout,
                asking=partial(run.asking, folder),
                folder=folder,
                file=f"answers-{step}.jsonl",
            )
            counts[step] = correct(found)
            run.say(f"step {step} has {counts[step]} of {len(draws)} right")
        best = max(counts, key=lambda step: (counts[step], step))
        self._keep(run.path / self.stage / CHECKPOINTS / f"checkpoint-{best}", folder, run)
        return {"best": best, "n": len(draws), "correct": {str(step): n for step, n in counts.items()}}

    def size(self, data: Data) -> Size:
        draws = data.validation(self.config.n)
        return Size(
            f"{self.candidates} checkpoints x {len(draws):,} tasks",
            sampled=self.candidates * trajectories(data, draws),
        )

    def _keep(self, checkpoint: Path, folder: RunFolder, run: Run) -> None:
        model, _ = models.load(checkpoint)
        models.save(folder.path / MODEL, model, start=run.model(self.stage))


def candidates(config: RlConfig, steps: int) -> int:
    """How many checkpoints an RL stage of so many generation batches leaves.

    At most so many for 0 steps: epochs that are not counted yet.
    """
    return min(config.keep_checkpoints, -(-steps // config.checkpoint_every)) or config.keep_checkpoints
