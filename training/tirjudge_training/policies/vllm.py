"""The policy in vLLM engines that the run starts itself."""

from __future__ import annotations

import os
from typing import Any

from tirjudge.generation.vllm import VllmGenerator
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.policies.weight_sync import WeightFolder


class VllmPolicy:
    """A copy of the trainer's model in vLLM, one engine per process.

    The weights pass through a folder in memory, which the first process writes and all processes read.
    """

    def __init__(
        self, model: Any, tokenizer: Any, name: str, *, processes: Processes = ALONE, **engine: Any
    ) -> None:
        """`engine` are arguments of `VllmGenerator.load`.

        Each of several `processes` must make the same calls. Raises GeneratorFailed.
        """
        self._weights = WeightFolder(model, tokenizer, processes)
        # The folder lies in memory: an engine that fails to start must not leave it there.
        try:
            with self._weights.written() as folder:
                self.generator = VllmGenerator.load(str(folder), **{"device_ids": own_device(), **engine})
        except BaseException:
            self._weights.close()
            raise
        # Not the path of the weight folder, which is a temporary one.
        self.generator.model = name

    async def refresh(self) -> None:
        with self._weights.written() as folder:
            await self.generator.load_weights(folder)

    async def rest(self) -> None:
        """Do nothing: vLLM keeps its memory for the whole run."""

    async def close(self) -> None:
        self._weights.close()
        await self.generator.close()


def own_device() -> list[int] | None:
    """Return this process's GPU if a launcher started several; None lets vLLM choose.

    Without it, vLLM would put the engines of all processes on the first GPU.
    """
    import torch

    rank = os.environ.get("LOCAL_RANK")
    return [int(rank)] if rank is not None and torch.cuda.device_count() else None
