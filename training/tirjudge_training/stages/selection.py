"""The stage that selects the RL checkpoint with the best validation accuracy."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation.model_files import CONFIG as ADAPTER_CONFIG
from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training import model_folder
from tirjudge_training.data.base import Data, trajectories
from tirjudge_training.distributed import checkpoints
from tirjudge_training.evaluation import correct, measure
from tirjudge_training.rl.engine import RolloutConfig
from tirjudge_training.rl.run import CHECKPOINTS
from tirjudge_training.stages.base import MODEL, Disk, Run, Size, Stage


class ValidationConfig(BaseModel):
    """The settings of the choice among checkpoints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int = Field(default=100, gt=0)
    """Tasks per judge, at most; each checkpoint answers all of them greedily (ours)."""
    select: bool = False
    """End the method `rl` with its best checkpoint, as every round of `iterative` does, instead of its last
    weights."""


class Selection(Stage):
    """Selects the checkpoint of an RL stage with the most right answers; the later one among equals.

    TIR §4.3 chooses by held-out accuracy, on 5 % of the prompts (§5.1).
    """

    stage: str
    """The name of the RL stage."""
    candidates: int
    """Number of checkpoints that it leaves."""
    config: ValidationConfig
    rollout: RolloutConfig

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        tasks = run.data.validation(self.config.n)
        counts = {}
        # One file of answers per checkpoint, so that a resumed stage repeats no answer.
        for checkpoint in checkpoints.marked(run.path / self.stage / CHECKPOINTS):
            step = checkpoints.step_of(checkpoint)

            def say(line: str, step: int = step) -> None:
                run.say(f"step {step}: {line}")

            found = measure(
                str(checkpoint),
                tasks,
                run.data.environments,
                self.rollout,
                enable_thinking=run.enable_thinking,
                dtype=run.dtype,
                reward_questions=partial(run.reward_questions, folder),
                folder=folder,
                file=f"answers-{step}.jsonl",
                say=say,
            )
            counts[step] = correct(found)
            run.say(f"step {step} has {counts[step]} of {len(tasks)} right")
        # Equal accuracy goes to the later step, which has seen more data.
        best = max(counts, key=lambda step: (counts[step], step))
        self._keep(run.path / self.stage / CHECKPOINTS / f"checkpoint-{best}", folder, run)
        return {"best": best, "n": len(tasks), "correct": {str(step): n for step, n in counts.items()}}

    def size(self, data: Data) -> Size:
        tasks = data.validation(self.config.n)
        return Size(
            f"{self.candidates} checkpoints x {len(tasks):,} tasks",
            sampled=self.candidates * trajectories(data, tasks),
        )

    def disk(self) -> Disk:
        return Disk(models=1)

    def describe(self, result: JsonObject) -> str:
        right = result["correct"][str(result["best"])]
        return (
            f"the checkpoint of step {result['best']}, with {right} of {result['n']} validation tasks right"
        )

    def _keep(self, checkpoint: Path, folder: RunFolder, run: Run) -> None:
        start = run.model(self.stage)
        if (Path(start) / ADAPTER_CONFIG).is_file():
            # The stage wrote an adapter, so its checkpoints are not merged either.
            model_folder.copy_adapter(checkpoint, folder.path / MODEL, start=start, note=run.note)
            return
        model, _ = model_folder.load(checkpoint, dtype=run.dtype)
        model_folder.save(folder.path / MODEL, model, start=start, note=run.note)
