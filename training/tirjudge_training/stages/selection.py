"""The stage that selects the step of an RL stage with the best validation accuracy."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from tirjudge.generation.model_files import CONFIG as ADAPTER_CONFIG
from tirjudge.storage.run_folder import JsonObject, RunFolder, read_lines
from tirjudge_training import model_folder
from tirjudge_training.data.base import Data
from tirjudge_training.distributed import checkpoints
from tirjudge_training.evaluation import ValidationConfig, correct, measure
from tirjudge_training.rl.engine import RolloutConfig
from tirjudge_training.rl.run import CHECKPOINTS
from tirjudge_training.stages.base import MODEL, Disk, Run, Size, Stage
from tirjudge_training.validation import SNAPSHOTS, VALIDATION, best_steps


class Selection(Stage):
    """Selects the step of an RL stage with the most right answers; the later one among equals.

    TIR §4.3 chooses by held-out accuracy, on 5 % of the prompts (§5.1). The stage has validated its steps and
    kept a snapshot of the best; one of an earlier version has checkpoints, which are measured here.
    """

    stage: str
    """The name of the RL stage."""
    candidates: int
    """Number of steps that it validates, at most."""
    config: ValidationConfig
    rollout: RolloutConfig
    distributed = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        validated = list(read_lines(run.path / self.stage / VALIDATION))
        if validated:
            return run.processes.first(lambda: self._copied(validated, folder, run))
        return self._measured(folder, run)

    def _copied(self, validated: list[JsonObject], folder: RunFolder, run: Run) -> JsonObject:
        """Copy the snapshot of the best step."""
        counts = {row["step"]: row["correct"] for row in validated}
        best = best_steps(counts)[0]
        shutil.rmtree(folder.path / MODEL, ignore_errors=True)
        shutil.copytree(run.path / self.stage / SNAPSHOTS / f"step-{best}", folder.path / MODEL)
        run.say(
            f"step {best} of {len(counts)} validated ones has {counts[best]} of {validated[0]['n']} right"
        )
        return {
            "best": best,
            "n": validated[0]["n"],
            "correct": {str(step): n for step, n in sorted(counts.items())},
        }

    def _measured(self, folder: RunFolder, run: Run) -> JsonObject:
        """Measure the checkpoints that the stage left, and convert the best one."""
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
                processes=run.processes,
            )
            counts[step] = correct(found)
            run.say(f"step {step} has {counts[step]} of {len(tasks)} right")
        # Equal accuracy goes to the later step, which has seen more data.
        best = max(counts, key=lambda step: (counts[step], step))
        checkpoint = run.path / self.stage / CHECKPOINTS / f"checkpoint-{best}"
        run.processes.first(lambda: self._keep(checkpoint, folder, run))
        return {"best": best, "n": len(tasks), "correct": {str(step): n for step, n in counts.items()}}

    def size(self, data: Data) -> Size:
        return Size(f"the best of at most {self.candidates} validated steps", copied=True)

    def disk(self) -> Disk:
        return Disk(models=1)

    def describe(self, result: JsonObject) -> str:
        right = result["correct"][str(result["best"])]
        return f"the weights of step {result['best']}, with {right} of {result['n']} validation tasks right"

    def _keep(self, checkpoint: Path, folder: RunFolder, run: Run) -> None:
        start = run.model(self.stage)
        if (Path(start) / ADAPTER_CONFIG).is_file():
            # The stage wrote an adapter, so its checkpoints are not merged either.
            model_folder.copy_adapter(checkpoint, folder.path / MODEL, start=start, note=run.note)
            return
        model, _ = model_folder.load(checkpoint, dtype=run.dtype)
        model_folder.save(folder.path / MODEL, model, start=start, note=run.note)
