"""The policies that sample with transformers: the trainer's model itself, or a full copy under FSDP."""

from __future__ import annotations

from typing import Any

from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_training.distributed.checkpoints import full_weights
from tirjudge_training.distributed.device import current_device
from tirjudge_training.distributed.fsdp import whole_copy


class OwnPolicy:
    """The trainer's model itself, so no weights are copied."""

    def __init__(self, model: Any, tokenizer: Any, name: str, *, enable_thinking: bool | None = None) -> None:
        self.generator = TransformersGenerator(
            model, tokenizer, name=name, autocast=current_device().autocast, enable_thinking=enable_thinking
        )

    async def refresh(self) -> None:
        # Only the KV cache has to be dropped: the weights are the trainer's own.
        self.generator.weights_changed()

    async def rest(self) -> None:
        self.generator.weights_changed()

    async def close(self) -> None:
        await self.generator.close()


class CopyPolicy:
    """A full copy of the trainer's model, for FSDP, which shards its weights, and for `rl.off_policy`.

    Generating with shards would need every process at every token, but their rollouts differ in length. A
    batch that is sampled while another is trained needs the weights of before that training.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, *, enable_thinking: bool | None = None) -> None:
        """`model` must not be sharded yet; `refresh` reads it after the trainer has sharded it."""
        own = current_device()
        # Copied now: once sharded, the model cannot be deep-copied as a whole.
        self._model, self._copy = model, whole_copy(model, own.device)
        # The copy gets weights with a merged adapter, so the copy has plain layers.
        for place, layer in list(self._copy.named_modules()):
            if hasattr(layer, "base_layer"):
                self._copy.set_submodule(place, layer.base_layer)
        self.generator = TransformersGenerator(
            self._copy, tokenizer, name=name, autocast=own.autocast, enable_thinking=enable_thinking
        )

    async def refresh(self) -> None:
        copy = self._copy.state_dict()
        for name, tensor in full_weights(self._model):
            copy[name].copy_(tensor)
        self.generator.weights_changed()

    async def rest(self) -> None:
        self.generator.weights_changed()

    async def close(self) -> None:
        await self.generator.close()
