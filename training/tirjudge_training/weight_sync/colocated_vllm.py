"""The policy in vLLM engines that the run starts itself."""

from __future__ import annotations

import os
from typing import Any

from tirjudge.generation.vllm import VllmGenerator
from tirjudge_training.distributed.checkpoints import full_weights
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.distributed.profiling import release, return_gpu_cache
from tirjudge_training.weight_sync.base import WeightFolder, can_stream


class VllmPolicy:
    """A copy of the trainer's model in vLLM, one engine per process.

    Each process passes the weights to its own engine one tensor at a time. An engine starts from a folder in
    memory, which the first process writes and all processes read, and which can also pass new weights. With
    vLLM's argument `enable_sleep_mode`, an engine that has rested holds no GPU memory until `refresh`.
    """

    def __init__(
        self, model: Any, tokenizer: Any, name: str, *, processes: Processes = ALONE, **engine: Any
    ) -> None:
        """`engine` are arguments of `VllmGenerator.load`.

        Each of several `processes` must make the same calls. Raises GeneratorFailed.
        """
        self._model, self._streams = model, can_stream(model, engine)
        self._sleeps = bool(engine.get("enable_sleep_mode"))
        # vLLM refuses to start on a GPU whose memory an earlier stage of this process still holds.
        release()
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
        if self._sleeps:
            return_gpu_cache()
        # Only the memory of the weights: passing weights needs memory that the KV cache would take.
        await self.generator.wake("weights")
        if self._streams:
            # Gathered here, in the trainer's thread: in another one, collective operations would use the
            # first GPU.
            await self.generator.receive_weights(full_weights(self._model))
        else:
            with self._weights.written() as folder:
                await self.generator.load_weights(folder)
        if self._sleeps:
            return_gpu_cache()
        await self.generator.wake("kv_cache")

    async def rest(self) -> None:
        """Free the engine's memory if it may sleep; otherwise vLLM keeps it for the whole run."""
        if self._sleeps:
            await self.generator.sleep()

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
