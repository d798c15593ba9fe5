"""The stage of supervised fine-tuning on the samples of earlier stages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tirjudge.storage.run_folder import JsonObject, RunFolder, read_lines
from tirjudge_training import model_folder
from tirjudge_training.data.base import Data, demonstrated, trajectories
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.sft import KEPT_CHECKPOINTS, METRICS, Sample, SftConfig, train_sft
from tirjudge_training.stages.base import MODEL, SAMPLES, Disk, Run, Size, Stage


class FineTuning(Stage):
    """Trains the model of one stage on the samples of others; the sandbox's outputs are masked."""

    samples: tuple[str, ...]
    """Names of the stages whose samples it trains on."""
    prompts: int | None
    """Number of prompts that each of them processed; None is every training row."""
    drawn: int
    """The seed with which they drew these prompts."""
    demonstrated: bool = False
    """True if the prompts are those of `data.demonstrations`, and not those of RL."""
    families: tuple[str, ...] = ()
    """The only constraint families of demonstrated prompts; empty means all."""
    config: SftConfig
    lora: LoraConfig | None = None
    """None trains all weights."""
    distributed = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        found = [sample for name in self.samples for sample in kept_samples(run.path / name)]
        # Truncated dialogues would lose their verdict, so a sample that is too long is dropped whole.
        samples = [sample for sample in found if len(sample.ids) <= self.config.max_tokens]
        if not found:
            raise RuntimeError(
                f"{self.name}: nothing to learn from: {' and '.join(self.samples)} kept no trajectory; "
                "train the sampling model further, or sample more"
            )
        if not samples:
            raise RuntimeError(
                f"{self.name}: all {len(found)} samples are longer than sft.max_tokens: raise it"
            )
        start = run.model(self.start)
        model = train_sft(
            Path(start),
            folder,
            self.config,
            samples,
            lora=self.lora,
            dtype=run.dtype,
            kernels=run.kernels,
            seed=self.seed,
            say=run.say,
            processes=run.processes,
        )
        # A distributed stage: every process holds a part of the model and takes part in saving.
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
            "samples": len(samples),
            "too_long": len(found) - len(samples),
            "steps": rows[-1]["step"],
            "seconds": sum(row["seconds/steps"] for row in rows),
            "cpu_seconds": sum(row["cpu_seconds/steps"] for row in rows),
        }

    def size(self, data: Data) -> Size:
        if self.demonstrated:
            tasks = demonstrated(data, self.prompts, self.drawn, self.families)
        else:
            tasks = data.prompts(self.prompts, self.drawn)
        most = len(self.samples) * trajectories(data, tasks)
        return Size(f"at most {most:,} samples", trained=most * self.config.epochs)

    def disk(self) -> Disk:
        return Disk(checkpoints=KEPT_CHECKPOINTS, models=1)

    def describe(self, result: JsonObject) -> str:
        return f"SFT on {result['samples']:,} samples"


def kept_samples(stage: Path) -> Iterator[Sample]:
    """Yield the samples of a stage in the order of its prompts, which may have finished in another order."""
    for row in sorted(read_lines(stage / SAMPLES), key=lambda row: row["index"]):
        for one in row["kept"]:
            yield Sample(tuple(one["ids"]), tuple(one["labels"]))
