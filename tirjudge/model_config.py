"""A model that is asked, as a configuration: behind an endpoint or in this process."""

from __future__ import annotations

import os
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation.base import Generator, Sampling
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.judging import KEY_VARIABLES
from tirjudge_environments import Completion, Context, Encoder


class AskedModel(BaseModel):
    """Which model, and how it is reached. The key of an endpoint comes from the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1)
    """The name that the endpoint knows; without one, a local folder or a hub id."""
    base_url: str = ""
    """Of an OpenAI-compatible endpoint; empty: the model runs in this process."""
    max_tokens: int = Field(default=8192, gt=0)
    """Of one answer, its reasoning included."""
    concurrency: int = Field(default=32, gt=0)
    """Questions at once."""
    patience: float = Field(default=600.0, ge=0)
    """Seconds for which an endpoint that is down is waited for before the run stops."""

    def generator(self) -> Generator:
        """A local model is loaded at the first question. Raises ValueError for what is no address."""
        if not self.base_url:
            return _Local(self.model, self.concurrency)
        key = next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
        return OpenAIGenerator(self.model, self.base_url, api_key=key, concurrency=self.concurrency)


class _Local:
    """A model in this process, loaded when it is needed: it may never be asked."""

    def __init__(self, model: str, rows: int) -> None:
        self.model, self._rows = model, rows

    @cached_property
    def _loaded(self) -> TransformersGenerator:
        return TransformersGenerator.load(self.model, max_rows=self._rows)

    @property
    def encoder(self) -> Encoder | None:
        return self._loaded.encoder

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        return await self._loaded.generate(context, sampling)

    async def close(self) -> None:
        if "_loaded" in vars(self):
            await self._loaded.close()
