"""Configuration of further models that a run asks, among them the MetaJudge, on which a reward depends."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation.base import Generator, Sampling
from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT
from tirjudge.generation.endpoint.openai import OpenAIGenerator
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.judging.options import Option, endpoint_key
from tirjudge.rollout.reward_questions import AnswerStore, RewardQuestions
from tirjudge_environments import Completion, Context, Encoder


class AskedModel(BaseModel):
    """A model and how to reach it. The key of an endpoint comes from the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    model: Annotated[str, Field(min_length=1), Option("Model")]
    """Folder, hub id, or an endpoint's name of the model."""
    base_url: Annotated[str, Option("Model", metavar="URL")] = ""
    """An OpenAI-compatible endpoint; without one the model runs in this process."""
    max_tokens: Annotated[int, Field(gt=0), Option("Model", metavar="N")] = 8192
    """Tokens of one answer, its reasoning included."""
    concurrency: Annotated[int, Field(gt=0), Option("Model", metavar="N")] = 32
    """Maximum number of concurrent questions."""
    patience: Annotated[float, Field(ge=0), Option("Model", metavar="SECONDS")] = 600.0
    """Seconds to wait for an endpoint that is down before the run stops."""
    timeout: Annotated[float, Field(gt=0), Option("Model", metavar="SECONDS")] = TIMEOUT
    """Seconds that one request to the endpoint may take; it is then repeated."""
    retries: Annotated[int, Field(ge=0), Option("Model", metavar="N")] = RETRIES
    """Further attempts of a request after a temporary failure."""

    def generator(self) -> Generator:
        """Return the generator; a local model is loaded at the first question.

        Raises ValueError for an invalid address.
        """
        if not self.base_url:
            return _Local(self.model, self.concurrency)
        return OpenAIGenerator(
            self.model,
            self.base_url,
            api_key=endpoint_key(),
            concurrency=self.concurrency,
            timeout=self.timeout,
            retries=self.retries,
        )


class MetaJudgeConfig(AskedModel):
    """The model that answers the questions of a reward.

    The rationale paper trains with Qwen3-30B-A3B-Instruct-2507 and evaluates with
    Qwen3-235B-A22B-Instruct-2507 and DeepSeek-R1 (sections 3.1, 4.2 and 4.5).
    """

    temperature: Annotated[float, Field(ge=0), Option("Model")] = 0.0
    """Temperature of the first attempt (our choice); an unreadable answer is retried at 0.7 or more."""

    def open(
        self, *, kept: AnswerStore | None = None, say: Callable[[str], None] = lambda line: None
    ) -> RewardQuestions:
        """Return the open MetaJudge; a local model is loaded at the first question.

        Raises ValueError for an invalid address.
        """
        return RewardQuestions(
            self.generator(),
            sampling=Sampling(temperature=self.temperature, max_tokens=self.max_tokens),
            kept=kept,
            patience=self.patience,
            say=say,
        )


class _Local:
    """A model in this process, loaded at the first question, since a run may have none."""

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
