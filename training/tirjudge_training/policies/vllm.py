"""vLLM engines of the run's own as the policy."""

from __future__ import annotations

import os
from typing import Any

from tirjudge.generation.vllm import VllmGenerator
from tirjudge_training.policies.weight_folder import WeightFolder
from tirjudge_training.processes import ALONE, Processes


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
        self._weights = WeightFolder(model, tokenizer, processes)
        try:
            with self._weights.written() as folder:
                self.generator = VllmGenerator.load(str(folder), **{"device_ids": own_device(), **engine})
        except BaseException:
            self._weights.close()
            raise
        self.generator.model = name

    async def refresh(self) -> None:
        with self._weights.written() as folder:
            await self.generator.load_weights(folder)

    async def rest(self) -> None:
        """The engine's memory is its own."""

    async def close(self) -> None:
        self._weights.close()
        await self.generator.close()


def own_device() -> list[int] | None:
    """The GPU of this process where a launcher started several, for vLLM would put all engines on the first.

    None lets vLLM choose.
    """
    import torch

    rank = os.environ.get("LOCAL_RANK")
    return [int(rank)] if rank is not None and torch.cuda.device_count() else None
