"""The extension of vLLM's workers: it loads new weights and repacks those that vLLM has transformed.

vLLM imports it by name in each worker process, also on a server of its own (`--worker-extension-cls`), so it
imports nothing else of this package.
"""

from __future__ import annotations

import os
from functools import cache
from select import select
from threading import Thread
from typing import Any


class WeightReloader:
    """A mixin of vLLM's worker class (`worker_extension_cls`), called through `collective_rpc`."""

    model_runner: Any
    reload_weights: Any

    def reload_from(self, folder: str) -> None:
        """Load the weights of a model folder of the same architecture."""
        self.reload_weights(weights_path=folder)
        for module in self.model_runner.model.modules():
            if _is_packed(module):
                module.quant_method.process_weights_after_loading(module)

    def end_with(self, process: int) -> None:
        """Exit when `process` exits: a trainer that is killed cannot shut its engine down."""
        _watch(process)


@cache
def _watch(process: int) -> None:
    Thread(target=_end_after, args=(os.pidfd_open(process),), daemon=True).start()


def _end_after(watched: int) -> None:
    select([watched], [], [])
    os._exit(1)


def _is_packed(module: Any) -> bool:
    """Return True for a module whose CPU kernel uses a packed copy of a weight that is still present.

    A tied output layer is never loaded itself, so vLLM 0.31 does not repack its copy: the model would
    continue with the old output weights, and no number would look wrong. Layers that keep only the packed
    copy are loaded, and packed, by vLLM.
    """
    return hasattr(module, "cpu_linear") and module.weight.numel() > 0
