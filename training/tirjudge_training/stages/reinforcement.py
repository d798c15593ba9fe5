"""RL from one model to the next."""

from __future__ import annotations

from pathlib import Path

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_training import models
from tirjudge_training.data import Data
from tirjudge_training.journal import METRICS
from tirjudge_training.lora import LoraConfig
from tirjudge_training.rl_config import RlConfig
from tirjudge_training.rl_stage import train_rl
from tirjudge_training.stages.base import MODEL, Run, Size, Stage

CPU = "cpu_seconds/"


class Reinforcement(Stage):
    """RL (TIR §4.2) that starts from, and is held near to, the model of an earlier stage."""

    start: str | None
    config: RlConfig
    lora: LoraConfig | None = None
    """None trains all weights."""
    together = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        start = run.model(self.start)
        model = train_rl(
            Path(start),
            folder,
            self.config,
            lora=self.lora,
            environments=run.data.environments,
            source=run.data.source(self.config.groups, self.seed),
            seed=self.seed,
            say=run.say,
            processes=run.processes,
            asking=run.asking(folder),
        )
        models.save(folder.path / MODEL, model, start=start, processes=run.processes)
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
            resampled=rows * config.refills,
            trained=rows,
            compared=rows if config.beta else 0,
        )


def _length(config: RlConfig) -> str:
    if config.epochs is None:
        return f"{config.steps} batches"
    return f"{config.epochs:g} epoch{'s' * (config.epochs != 1)} in batches"
