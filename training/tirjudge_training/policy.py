"""The policy as a generator: the trainer's own model, or vLLM with weights that follow it."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol

from tirjudge.generation import Generator
from tirjudge.generation.transformers import TransformersGenerator
from tirjudge.generation.vllm import VllmGenerator
from tirjudge_training.processes import ALONE, Processes
from tirjudge_training.weights import whole_weights

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


class CopyPolicy:
    """A whole copy of the trainer's model, whose own weights are shared out over the processes (FSDP).

    Generating with a part would need every process at every token, and they do not take as many.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        """`model` is still whole here; `refresh` finds it as the trainer has shared it out."""
        import torch

        self._model = model
        self._copy = deepcopy(model).to("cuda" if torch.cuda.is_available() else "cpu")
        self.generator = TransformersGenerator(self._copy, tokenizer, name=name)

    async def refresh(self) -> None:
        copy = self._copy.state_dict()
        for name, tensor in whole_weights(self._model):
            copy[name].copy_(tensor)
        self.generator.weights_changed()

    async def close(self) -> None:
        await self.generator.close()


class VllmPolicy:
    """A second copy of the trainer's model, in vLLM; the weights go there as a file in memory.

    The first process of each machine writes it for all of them.
    """

    def __init__(
        self, model: Any, tokenizer: Any, name: str, processes: Processes = ALONE, **engine: Any
    ) -> None:
        """`engine` are arguments of vLLM's engine. Raises GeneratorFailed."""
        self._model, self._processes = model, processes
        self._folder = TemporaryDirectory(prefix="tirjudge-", dir=MEMORY if MEMORY.is_dir() else None)
        self._shared = Path(processes.every(self._folder.name)[processes.neighbour])
        try:
            tokenizer.save_pretrained(self._folder.name)
            self._save()
            self.generator = VllmGenerator.load(str(self._shared), **{"device_ids": own_device(), **engine})
        except BaseException:
            self._folder.cleanup()
            raise
        self.generator.model = name

    async def refresh(self) -> None:
        self._save()
        await self.generator.load_weights(self._shared)

    async def close(self) -> None:
        self._folder.cleanup()
        await self.generator.close()

    def _save(self) -> None:
        writes = self._processes.neighbour == self._processes.rank
        weights = {name: tensor.cpu() for name, tensor in whole_weights(self._model) if writes}
        if writes:
            self._model.save_pretrained(self._shared, state_dict=weights)
        self._processes.every(None)


def own_device() -> list[int] | None:
    """The GPU of this process where a launcher started several, for vLLM would put all engines on the first.

    None lets vLLM choose.
    """
    import torch

    rank = os.environ.get("LOCAL_RANK")
    return [int(rank)] if rank is not None and torch.cuda.device_count() else None
