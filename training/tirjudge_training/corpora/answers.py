"""Answers of the configured generators to a prompt, each asked for once and kept on the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from tirjudge.generation.base import Sampling
from tirjudge.model_config import AskedModel
from tirjudge.rollout.reward_questions import AnswerStore, RewardQuestions
from tirjudge_environments import Ask, Message, Prompt
from tirjudge_training.corpora.base import Answer
from tirjudge_training.corpora.config import SamplingConfig


class Generators:
    """A `Sampler` whose answers lie in `folder`, as `asked.jsonl`. Belongs to one event loop.

    Raises ValueError for an address that is none, or a file that is not ours.
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
        self._kept = AnswerStore(folder)
        self._generators = [one.generator() for one in models]
        self._asking = {
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
        asks = [Ask(f"{key}#{number}", Prompt(messages=tuple(prompt))) for number in range(self._samples)]
        found = await asyncio.gather(*(asking.answers(asks) for asking in self._asking.values()))
        return [
            Answer(model, texts[ask.key])
            for model, texts in zip(self._asking, found, strict=True)
            for ask in asks
            if ask.key in texts
        ]

    async def close(self) -> None:
        for generator in self._generators:
            await generator.close()
        self._kept.close()
