"""The stage of reinforcement learning."""

from __future__ import annotations

from pathlib import Path

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training import model_folder
from tirjudge_training.data.base import Data
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.metrics import METRICS
from tirjudge_training.rl.run import checkpoints_kept, train_rl
from tirjudge_training.stages.base import MODEL, Disk, Run, Size, Stage

CPU = "cpu_seconds/"


class Reinforcement(Stage):
    """RL (TIR §4.2) from the model of an earlier stage, which is also the reference of the KL divergence."""

    config: RlConfig
    lora: LoraConfig | None = None
    """None trains all weights."""
    distributed = True
    kind = "RL"

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        start = run.model(self.start)
        model = train_rl(
            Path(start),
            folder,
            self.config,
            lora=self.lora,
            dtype=run.dtype,
            kernels=run.kernels,
            environments=run.data.environments,
            source=run.data.source(self.config.groups, self.seed),
            seed=self.seed,
            say=run.say,
            processes=run.processes,
            enable_thinking=run.enable_thinking,
            reward_questions=run.reward_questions(folder),
        )
        model_folder.save(
            folder.path / MODEL,
            model,
            start=start,
            lora=self.lora,
            note=run.note,
            processes=run.processes,
        )
        rows = list(folder.read(METRICS))
        return {
            "steps": len(rows),
            "seconds": sum(row["seconds/step"] for row in rows),
            "cpu_seconds": sum(row[name] for row in rows for name in row if name.startswith(CPU)),
        }

    def size(self, data: Data) -> Size:
        config = self.config
        rows = config.steps * config.groups * config.samples
        return Size(
            f"{_length(config)} of {config.groups} x {config.samples}",
            sampled=rows,
            # An upper limit: every round could replace all groups.
            resampled=rows * config.replacement_rounds,
            trained=rows,
            compared=rows if config.beta else 0,
        )

    def disk(self) -> Disk:
        return Disk(checkpoints=checkpoints_kept(self.config, self.config.steps), models=1, rollouts=True)

    def describe(self, result: JsonObject) -> str:
        return (
            f"RL for {result['steps']} batches of {self.config.groups} x {self.config.samples} rollouts, in "
            f"{result['cpu_seconds']:.0f} CPU seconds, programs included ({result['seconds']:.0f} s wall)"
        )

    @property
    def reference(self) -> bool:
        return self.config.beta > 0


def _length(config: RlConfig) -> str:
    if config.epochs is None:
        return f"{config.steps} batches"
    return f"{config.epochs:g} epoch{'s' * (config.epochs != 1)} in batches"
