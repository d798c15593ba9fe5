"""Answers sampled from the configured generators, cached on disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tirjudge.generation.base import Sampling
from tirjudge.judging.meta_judge import AskedModel
from tirjudge.rollout.reward_questions import AnswerStore, RewardQuestions
from tirjudge_environments import Message, Prompt, Question
from tirjudge_training.corpora.base import Answer
from tirjudge_training.corpora.config import SamplingConfig

Item = TypeVar("Item")
Result = TypeVar("Result")


class Generators:
    """A `Sampler` that caches its answers in `folder` as `asked.jsonl`. Belongs to one event loop.

    Raises ValueError for an invalid address, or for a cache file that tirjudge did not write.
    """

    def __init__(
        self,
        models: Sequence[AskedModel],
        config: SamplingConfig,
        folder: Path,
        *,
        say: Callable[[str], None],
    ) -> None:
        self._samples = config.samples
        # One store for all models: the keys contain the model's name.
        self._kept = AnswerStore(folder)
        self._generators = [one.generator() for one in models]
        self._models = {
            one.model: RewardQuestions(
                generator,
                sampling=Sampling(
                    temperature=config.temperature, top_p=config.top_p, max_tokens=one.max_tokens
                ),
                kept=self._kept,
                patience=one.patience,
                say=say,
            )
            for one, generator in zip(models, self._generators, strict=True)
        }

    async def answers(self, key: str, prompt: Sequence[Message]) -> list[Answer]:
        # The number is part of the key: it gives each sample a seed and a cache entry of its own.
        asks = [
            Question(f"{key}#{number}", Prompt(messages=tuple(prompt))) for number in range(self._samples)
        ]
        found = await asyncio.gather(
            *(reward_questions.answers(asks) for reward_questions in self._models.values())
        )
        return [
            Answer(model, texts[ask.key])
            for model, texts in zip(self._models, found, strict=True)
            for ask in asks
            if ask.key in texts
        ]

    async def close(self) -> None:
        for generator in self._generators:
            await generator.close()
        self._kept.close()


async def in_order(
    items: Iterable[Item], work: Callable[[Item], Awaitable[Result]], window: int
) -> AsyncGenerator[Result]:
    """Yield the results of `work` in the order of `items`, with at most `window` calls running at once.

    Closing the generator cancels the calls that are still running.
    """
    # Results come in the order of the items, so that a resumed build composes the same rows.
    running: deque[asyncio.Future[Result]] = deque()
    try:
        for item in items:
            running.append(asyncio.ensure_future(work(item)))
            if len(running) >= window:
                yield await running.popleft()
        while running:
            yield await running.popleft()
    finally:
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)
