"""The extension of vLLM's workers: it loads new weights and repacks weights that vLLM has transformed.

Each worker process of vLLM, also on a separate server (`--worker-extension-cls`), imports the module by name,
so the module imports little of this package.
"""

from __future__ import annotations

import math
import os
import pickle
from functools import cache
from mmap import mmap
from pathlib import Path
from select import select
from threading import Thread
from typing import Any

MEMORY = Path("/dev/shm")
"""The place of shared memory on Linux."""


class WeightReloader:
    """A mixin of vLLM's worker class (`worker_extension_cls`), called through `collective_rpc`."""

    model_runner: Any
    reload_weights: Any
    device: Any

    def reload_from(self, folder: str) -> None:
        """Load the weights of a model folder of the same architecture."""
        self.reload_weights(weights_path=folder)
        self._repack()

    def begin_weights(self) -> None:
        """Expect new weights from `take_weight`; nothing may be generated until `end_weights`."""
        from vllm.model_executor.model_loader.reload import (
            finalize_layerwise_reload,
            initialize_layerwise_reload,
        )

        # A sync that was cut off may have left a layer with some tensors, which vLLM would count as new.
        finalize_layerwise_reload(self.model_runner.model, self.model_runner.model_config)
        initialize_layerwise_reload(self.model_runner.model)

    def take_weight(self, name: str, shared: bytes) -> None:
        """Load one tensor, which another process of this machine shares, see `SharedTensor`.

        vLLM keeps a layer's tensors until the layer is complete, so that at most one layer is there twice.
        """
        tensor, opened = open_shared(shared)
        # A copy, since the sender puts the next tensor in the same place.
        self.model_runner.model.load_weights([(name, tensor.clone())])
        del tensor
        if opened is not None:
            opened.close()

    def end_weights(self) -> None:
        """Finish loading; all weights must have been sent."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model_runner.model, self.model_runner.model_config)
        self._repack()

    def _repack(self) -> None:
        for module in self.model_runner.model.modules():
            if _is_packed(module):
                module.quant_method.process_weights_after_loading(module)

    def end_with(self, process: int) -> None:
        """Exit when `process` exits: a trainer that is killed cannot shut its engine down."""
        _watch(process)


def open_shared(shared: bytes) -> tuple[Any, Any]:
    """Return a tensor of another process, not copied, and the memory to close after use, or None."""
    import torch

    kind, *rest = pickle.loads(shared)  # from the trainer, which started this engine
    if kind == "cuda":
        (rebuild, arguments) = rest
        # The number of the GPU in the sender's process; the same one may have another number here.
        return rebuild(*arguments[:6], torch.cuda.current_device(), *arguments[7:]), None
    name, dtype, shape = rest
    # Not by Python's SharedMemory, which would delete the sender's memory at the end of this process.
    with (MEMORY / name).open("r+b") as file:
        memory = mmap(file.fileno(), 0)
    return torch.frombuffer(memory, dtype=getattr(torch, dtype), count=math.prod(shape)).view(shape), memory


# Every sync asks for it again, and one thread is enough.
@cache
def _watch(process: int) -> None:
    # A pidfd stays with this process, while a number may later name another process.
    Thread(target=_end_after, args=(os.pidfd_open(process),), daemon=True).start()


def _end_after(watched: int) -> None:
    select([watched], [], [])
    # SystemExit would end only this thread.
    os._exit(1)


def _is_packed(module: Any) -> bool:
    """Return True for a module whose CPU kernel uses a packed copy of a weight that is still present.

    A tied output layer is never loaded itself, so vLLM 0.31 does not repack its copy: the model would
    continue with the old output weights, and no number would look wrong. Layers that keep only the packed
    copy are loaded, and packed, by vLLM.
    """
    return hasattr(module, "cpu_linear") and module.weight.numel() > 0
