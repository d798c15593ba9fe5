"""Supervised fine-tuning on what earlier stages kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tirjudge.storage.run_folder import JsonObject, RunFolder, read_lines
from tirjudge_training import models
from tirjudge_training.data import Data, trajectories
from tirjudge_training.lora import LoraConfig
from tirjudge_training.samples import Sample
from tirjudge_training.sft import SftConfig, train_sft
from tirjudge_training.stages.base import MODEL, SAMPLES, Run, Size, Stage


class FineTuning(Stage):
    """Trains the model of one stage on the trajectories of others; the sandbox's outputs are masked."""

    start: str | None
    samples: tuple[str, ...]
    """The stages whose samples it trains on."""
    prompts: int | None
    """The prompts that each of them went through; None is every training row."""
    config: SftConfig
    lora: LoraConfig | None = None
    """None trains all weights."""
    together = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        found = [sample for name in self.samples for sample in kept(run.path / name)]
        samples = [sample for sample in found if len(sample.ids) <= self.config.max_tokens]
        if not found:
            raise RuntimeError(
                f"{self.name}: nothing to learn from, since {' and '.join(self.samples)} kept no trajectory: "
                "train the model before further, or sample more"
            )
        if not samples:
            raise RuntimeError(f"{self.name}: all {len(found)} samples are longer than sft.max_tokens")
        start = run.model(self.start)
        model = train_sft(
            Path(start),
            folder,
            self.config,
            samples,
            lora=self.lora,
            seed=self.seed,
            say=run.say,
            processes=run.processes,
        )
        models.save(folder.path / MODEL, model, start=start, processes=run.processes)
        return {"samples": len(samples), "too_long": len(found) - len(samples)}

    def size(self, data: Data) -> Size:
        most = len(self.samples) * trajectories(data, data.prompts(self.prompts, self.seed))
        return Size(f"at most {most:,} samples", trained=most * self.config.epochs)


def kept(stage: Path) -> Iterator[Sample]:
    """A stage's samples in the order of its prompts, whatever order they were finished in."""
    for row in sorted(read_lines(stage / SAMPLES), key=lambda row: row["index"]):
        for one in row["kept"]:
            yield Sample(tuple(one["ids"]), tuple(one["labels"]))
