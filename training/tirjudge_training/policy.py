"""The policy as a generator: the trainer's own model, or vLLM with weights that follow it."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol

from tirjudge.generation import Generator
from tirjudge.generation.transformers import TransformersGenerator
from tirjudge.generation.vllm import VllmGenerator

Sampler = Literal["transformers", "vllm"]

MEMORY = Path("/dev/shm")


class PolicyGenerator(Generator, Protocol):
    """A generator that tells how long it was at work."""

    busy_seconds: float


class Policy(Protocol):
    """Who samples in a training run."""

    @property
    def generator(self) -> PolicyGenerator: ...

    async def refresh(self) -> None:
        """Sample with the weights as they are now. Raises GeneratorFailed."""
        ...

    async def close(self) -> None: ...


class OwnPolicy:
    """The trainer's model itself."""

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self.generator = TransformersGenerator(model, tokenizer, name=name)

    async def refresh(self) -> None:
        self.generator.weights_changed()

    async def close(self) -> None:
        await self.generator.close()


class VllmPolicy:
    """A second copy of the trainer's model, in vLLM; the weights go there as a file in memory."""

    def __init__(self, model: Any, tokenizer: Any, name: str, **engine: Any) -> None:
        """`engine` are arguments of vLLM's engine. Raises GeneratorFailed."""
        self._model = model
        self._folder = TemporaryDirectory(prefix="tirjudge-", dir=MEMORY if MEMORY.is_dir() else None)
        try:
            tokenizer.save_pretrained(self._folder.name)
            self._save()
            self.generator = VllmGenerator.load(self._folder.name, **{"device_ids": own_device(), **engine})
        except BaseException:
            self._folder.cleanup()
            raise
        self.generator.model = name

    async def refresh(self) -> None:
        self._save()
        await self.generator.load_weights(Path(self._folder.name))

    async def close(self) -> None:
        self._folder.cleanup()
        await self.generator.close()

    def _save(self) -> None:
        self._model.save_pretrained(self._folder.name)


def own_device() -> list[int] | None:
    """The GPU of this process where a launcher started several, for vLLM would put all engines on the first.

    None lets vLLM choose.
    """
    import torch

    rank = os.environ.get("LOCAL_RANK")
    return [int(rank)] if rank is not None and torch.cuda.device_count() else None
