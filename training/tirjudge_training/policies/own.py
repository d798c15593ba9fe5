"""The policy of a run in one process or with DDP: the trainer's model itself."""

from __future__ import annotations

from typing import Any

from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge_training.computing import here


class OwnPolicy:
    """The trainer's model itself, so that no weights have to be copied."""

    def __init__(self, model: Any, tokenizer: Any, name: str) -> None:
        self.generator = TransformersGenerator(model, tokenizer, name=name, autocast=here().autocast)

    async def refresh(self) -> None:
        self.generator.weights_changed()

    async def rest(self) -> None:
        self.generator.weights_changed()

    async def close(self) -> None:
        await self.generator.close()
