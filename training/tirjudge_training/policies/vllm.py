"""The policy in vLLM engines that the run starts itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tirjudge.generation.vllm import VllmGenerator
from tirjudge_training.distributed.checkpoints import full_weights
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.policies.weight_sync import WeightFolder, WeightSync


class VllmPolicy:
    """A copy of the trainer's model in vLLM, one engine per process.

    Each process passes the weights to its own engine one tensor at a time. An engine starts from a folder in
    memory, which the first process writes and all processes read, and which can also pass new weights.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str,
        *,
        processes: Processes = ALONE,
        weight_sync: WeightSync = "stream",
        **engine: Any,
    ) -> None:
        """`engine` are arguments of `VllmGenerator.load`.

        Each of several `processes` must make the same calls. Raises GeneratorFailed.
        """
        self._model, self._streams = model, weight_sync == "stream" and can_stream(model, engine)
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
        if self._streams:
            # Gathered here, in the trainer's thread: in another one, collective operations would use the
            # first GPU.
            await self.generator.receive_weights(full_weights(self._model))
            return
        with self._weights.written() as folder:
            await self.generator.load_weights(folder)

    async def rest(self) -> None:
        """Do nothing: vLLM keeps its memory for the whole run."""

    async def close(self) -> None:
        self._weights.close()
        await self.generator.close()


def can_stream(model: Any, engine: Mapping[str, Any]) -> bool:
    """Return True if an engine with these arguments can take the model's tensors one by one.

    It cannot if it spans several GPUs, which do not share the trainer's memory, or if transformers stores the
    weights in another form than model files do, as it does for mixtures of experts.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter

    alone = engine.get("tensor_parallel_size", 1) == engine.get("pipeline_parallel_size", 1) == 1
    return alone and not any(
        isinstance(rule, WeightConverter) for rule in get_model_conversion_mapping(model)
    )


def own_device() -> list[int] | None:
    """Return this process's GPU if a launcher started several; None lets vLLM choose.

    Without it, vLLM would put the engines of all processes on the first GPU.
    """
    import torch

    rank = os.environ.get("LOCAL_RANK")
    return [int(rank)] if rank is not None and torch.cuda.device_count() else None
