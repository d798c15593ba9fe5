"""A whole copy of the trainer's model as the policy."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_training.computing import here
from tirjudge_training.weights import whole_weights


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
