"""The miniature's first stage: builds it from random weights and teaches it the dialogue by SFT."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_sandbox import open_sandbox
from tirjudge_training import miniature, models
from tirjudge_training.data import Data
from tirjudge_training.miniature import ShapeConfig
from tirjudge_training.samples import Sample
from tirjudge_training.sft import KEPT_CHECKPOINTS, SftConfig, train_sft
from tirjudge_training.stages.base import MODEL, Disk, Run, Size, Stage
from tirjudge_training.warmup import CorpusConfig, corpus

BASE = "base"
"""The subfolder of the random weights."""


class WarmUpConfig(BaseModel):
    """The shape of the miniature, its warm-up corpus, and how it is trained on it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: ShapeConfig = ShapeConfig()
    corpus: CorpusConfig = CorpusConfig()
    sft: SftConfig = SftConfig()


class WarmUp(Stage):
    """Builds the miniature and trains it on the warm-up corpus."""

    config: WarmUpConfig
    distributed = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        model, tokenizer = miniature.build_model(self.seed, self.config.shape)
        base = model
        run.processes.first(lambda: miniature.save(folder.path / BASE, base, tokenizer))
        run.say(f"writing {self.config.corpus.samples} samples")

        async def write() -> list[Sample]:
            async with open_sandbox() as sandbox:
                return await corpus(tokenizer, sandbox, self.config.corpus, self.seed)

        samples = run.processes.first(lambda: asyncio.run(write()))
        model = train_sft(
            folder.path / BASE,
            folder,
            self.config.sft,
            samples,
            seed=self.seed,
            say=run.say,
            processes=run.processes,
        )
        models.save(folder.path / MODEL, model, start=str(folder.path / BASE), processes=run.processes)
        return {"samples": len(samples)}

    def size(self, data: Data) -> Size:
        samples = self.config.corpus.samples
        return Size(f"{samples:,} generated samples", trained=samples * self.config.sft.epochs)

    def disk(self) -> Disk:
        return Disk(checkpoints=KEPT_CHECKPOINTS, models=2)  # the second one holds the random weights

    def describe(self, result: JsonObject) -> str:
        return f"a supervised warm-up on {result['samples']:,} generated samples"
