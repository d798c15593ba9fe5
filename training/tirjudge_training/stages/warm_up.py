"""The miniature's first stage: builds it from random weights and teaches it the dialogue by SFT."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict

from tirjudge.storage.run_folder import JsonObject, RunFolder
from tirjudge_sandbox import open_sandbox
from tirjudge_training import model_folder
from tirjudge_training.data.base import Data
from tirjudge_training.miniature.model import ShapeConfig, build_model, save
from tirjudge_training.miniature.warmup_corpus import CorpusConfig, corpus
from tirjudge_training.sft import KEPT_CHECKPOINTS, Sample, SftConfig, train_sft
from tirjudge_training.stages.base import MODEL, Disk, Run, Size, Stage

BASE = "base"
"""The subfolder of the random weights."""


class WarmUpConfig(BaseModel):
    """The warm-up of the miniature, with its shape and corpus, or that of a base model on demonstrations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: ShapeConfig = ShapeConfig()
    corpus: CorpusConfig = CorpusConfig()
    sft: SftConfig = SftConfig()


class WarmUp(Stage):
    """Builds the miniature and trains it on the warm-up corpus."""

    config: WarmUpConfig
    distributed = True

    def work(self, folder: RunFolder, run: Run) -> JsonObject:
        model, tokenizer = build_model(self.seed, self.config.shape)
        # Written to disk first, because SFT starts from a model folder.
        base = model
        run.processes.first(lambda: save(folder.path / BASE, base, tokenizer))

        async def write() -> list[Sample]:
            # Said here, where a Ctrl-C that answers it finds an event loop that can be closed.
            run.say(f"writing {self.config.corpus.samples} samples")
            async with open_sandbox() as sandbox:
                return await corpus(tokenizer, sandbox, self.config.corpus, self.seed, run.say)

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
        model_folder.save(
            folder.path / MODEL,
            model,
            start=str(folder.path / BASE),
            note=run.note,
            processes=run.processes,
        )
        return {"samples": len(samples)}

    def size(self, data: Data) -> Size:
        samples = self.config.corpus.samples
        return Size(f"{samples:,} generated samples", trained=samples * self.config.sft.epochs)

    def disk(self) -> Disk:
        return Disk(checkpoints=KEPT_CHECKPOINTS, models=2)  # the second one holds the random weights

    def describe(self, result: JsonObject) -> str:
        return f"a supervised warm-up on {result['samples']:,} generated samples"
