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
from tirjudge_training.computing import here
from tirjudge_training.processes import ALONE, Processes
from tirjudge_training.weights import on_the_first, whole_weights

Sampler = Literal["transformers", "vllm"]

MEMORY = Path("/dev/shm")


class PolicyGenerator(Generator, Protocol):
    """A generator that tells how long it was at work, and how exactly."""

    @property
    def busy_seconds(self) -> float:
        """Wall time since the start in which tokens were computed, or waited for."""
        ...

    @property
    def precision(self) -> str:
        """What matrix products are computed in: `bfloat16`, ..."""
        ...


class Policy(Protocol):
    """Who samples in a training run."""

    @property
    def generator(self) -> PolicyGenerator: ...

    async def refresh(self) -> None:
        """Sample with the weights as they are now. Raises GeneratorFailed."""
        ...

    async def rest(self) -> None:
        """Give back the memory that nothing but sampling needs, until the next `refresh`."""
        ...

    async def close(self) -> None: ...


class OwnPolicy:
    """The trainer's model itself."""

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self.generator = TransformersGenerator(model, tokenizer, name=name, autocast=here().autocast)

    async def refresh(self) -> None:
        self.generator.weights_changed()

    async def rest(self) -> None:
        self.generator.weights_changed()

    async def close(self) -> None:
        await self.generator.close()


class CopyPolicy:
    """A whole copy of the trainer's model, whose own weights are shared out over the processes (FSDP).

    Generating with a part would need every process at every token, and they do not take as many.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        """`model` is still whole here; `refresh` finds it as the trainer has shared it out."""
        computing = here()
        self._model, self._copy = model, deepcopy(model).to(computing.device)
        self.generator = TransformersGenerator(self._copy, tokenizer, name=name, autocast=computing.autocast)

    async def refresh(self) -> None:
        copy = self._copy.state_dict()
        for name, tensor in whole_weights(self._model):
            copy[name].copy_(tensor)
        self.generator.weights_changed()

    async def rest(self) -> None:
        self.generator.weights_changed()

    async def close(self) -> None:
        await self.generator.close()


class VllmPolicy:
    """A copy of the trainer's model in vLLM, one for each process of a machine.

    The weights go there through a folder in memory that the first process writes and all of them read.
    """

    def __init__(
        self, model: Any, tokenizer: Any, name: str, *, processes: Processes = ALONE, **engine: Any
    ) -> None:
        """`engine` are arguments of vLLM's engine. Every one of several `processes` makes the same calls.

        Raises GeneratorFailed.
        """
        self._model, self._processes = model, processes
        self._memory = TemporaryDirectory(prefix="tirjudge-", dir=MEMORY if MEMORY.is_dir() else None)
        self._folder = Path(processes.first(lambda: self._memory.name))
        try:
            processes.first(lambda: tokenizer.save_pretrained(self._folder))
            self._save()
            self.generator = VllmGenerator.load(str(self._folder), **{"device_ids": own_device(), **engine})
            self._forget()
        except BaseException:
            self._memory.cleanup()
            raise
        self.generator.model = name

    async def refresh(self) -> None:
        self._save()
        await self.generator.load_weights(self._folder)
        self._forget()

    async def rest(self) -> None:
        """The engine's memory is its own."""

    async def close(self) -> None:
        self._memory.cleanup()
        await self.generator.close()

    def _save(self) -> None:
        """By the first process: transformers writes nothing in the others."""
        weights = on_the_first(self._model, self._processes)
        self._processes.first(lambda: self._model.save_pretrained(self._folder, state_dict=weights))

    def _forget(self) -> None:
        """Once all engines have read the weights; a run that is killed would leave them in memory."""
        self._processes.every("read")
        if self._processes.rank == 0:
            for file in self._folder.glob("*.safetensors"):
                file.unlink()


def own_device() -> list[int] | None:
    """The GPU of this process where a launcher started several, for vLLM would put all engines on the first.

    None lets vLLM choose.
    """
    import torch

    rank = os.environ.get("LOCAL_RANK")
    return [int(rank)] if rank is not None and torch.cuda.device_count() else None
