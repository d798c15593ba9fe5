"""What runs inside vLLM's workers: new weights, and whatever was made of the old ones made anew."""

from __future__ import annotations

import os
from functools import cache
from select import select
from threading import Thread
from typing import Any


class WeightReloader:
    """Mixed into vLLM's worker by its `worker_extension_cls`; called through `collective_rpc`."""

    model_runner: Any
    reload_weights: Any

    def reload_from(self, folder: str) -> None:
        """Take the weights of a model folder of the same architecture."""
        self.reload_weights(weights_path=folder)
        for module in self.model_runner.model.modules():
            if _is_packed(module):
                module.quant_method.process_weights_after_loading(module)

    def end_with(self, process: int) -> None:
        """End when `process` does: a trainer that is killed cannot end its engine, which would stay."""
        _watch(process)


@cache
def _watch(process: int) -> None:
    Thread(target=_end_after, args=(os.pidfd_open(process),), daemon=True).start()


def _end_after(watched: int) -> None:
    select([watched], [], [])
    os._exit(1)


def _is_packed(module: Any) -> bool:
    """Whether a CPU's kernel multiplies with a copy of the module's weight that can be made anew.

    A tied output layer is never loaded itself, so vLLM 0.31 leaves its copy as it was: the model would go on
    speaking with the old weights, and no number would look wrong. Layers that gave their weight up for the
    copy are loaded, and packed, by vLLM.
    """
    return hasattr(module, "cpu_linear") and module.weight.numel() > 0
