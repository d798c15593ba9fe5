"""Sampled answers: cached, and sorted into right and wrong ones by math-verify."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tirjudge.generation.base import Sampling
from tirjudge.judging.meta_judge import AnswerStore, AskedModel, RewardQuestions
from tirjudge_environments import Message, Prompt, Question
from tirjudge_sandbox import Sandbox
from tirjudge_training.corpora.base import Answer, Columns, Sampler, Skipped, Source, SourceItem
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
        kept = AnswerStore(folder)
        self._models = {
            one.model: RewardQuestions(
                one.generator(),
                sampling=Sampling.of(config, max_tokens=one.max_tokens),
                kept=kept,
                patience=one.patience,
                say=say,
            )
            for one in models
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
        """Cancel the requests under way, and close the generators and the store."""
        # At once, so that no request of one model ends after another model has closed the shared store.
        await asyncio.gather(*(reward_questions.close() for reward_questions in self._models.values()))


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


SECONDS = 5
"""Seconds for parsing one answer, and for comparing two: simplifying an expression may never end."""
BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
"""Appended to the prompt for the generators, but not to the prompt that is judged (ours)."""
_OPENED = "\\boxed{"
UNREADABLE = "a gold answer that math-verify cannot parse"
UNDECIDED = "no right and no wrong answer among the samples"


class FinalAnswers:
    """Parses final answers and compares them with a gold answer.

    Works in the main thread only, since math-verify uses signals for its time limits. Raises ValueError for a
    gold answer that cannot be parsed.
    """

    def __init__(self, gold: str) -> None:
        import math_verify

        # It logs a warning for every answer that exceeds the time limit.
        logging.getLogger("math_verify").setLevel(logging.ERROR)
        self._configs = (
            math_verify.LatexExtractionConfig(boxed_match_priority=0),  # a boxed answer before any other
            math_verify.ExprExtractionConfig(),
        )
        self._verify = math_verify.verify
        self._parse = math_verify.parse
        # Boxed like the answers, so that the same parser reads both.
        self._gold = self._read(f"\\boxed{{{gold}}}")
        if not self._gold:
            raise ValueError(UNREADABLE)

    def sort(self, texts: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return (right, wrong) texts.

        A text without a final answer is neither: a judge could tell it by that alone.
        """
        good: list[str] = []
        bad: list[str] = []
        for text in texts:
            found = self._read(text)
            # Gold first: math-verify's comparison is not symmetric.
            if found:
                (good if self._verify(self._gold, found, timeout_seconds=SECONDS) else bad).append(text)
        return good, bad

    def _read(self, text: str) -> list[Any]:
        return self._parse(text, self._configs, parsing_timeout=SECONDS)


class Solved(Source[Columns]):
    """A source of problems with a known final answer, `known["gold"]`; the solutions are sampled."""

    async def fill(self, question: SourceItem, sampler: Sampler, sandbox: Sandbox) -> SourceItem | Skipped:
        return await sampled(question, sampler)


async def sampled(question: SourceItem, sampler: Sampler) -> SourceItem | Skipped:
    """Add the generators' answers to the question's answers, sorted by `known["gold"]`.

    All right answers end in the gold answer, so every wrong answer ends in another final answer.
    """
    try:
        gold = FinalAnswers(question.known["gold"])
    except ValueError as error:
        return Skipped(str(error))
    *before, last = question.prompt
    asked = (*before, Message(last.role, f"{last.content}\n\n{BOXED}"))
    answers = await sampler.answers(question.key, asked)
    good, bad = gold.sort(answer.text for answer in answers)
    filled = question.answered((*question.good, *good), (*question.bad, *bad))
    return filled if filled.good and filled.bad else Skipped(UNDECIDED)


def last_boxed(text: str) -> str | None:
    """Return the content of the last `\\boxed{...}` of a solution; None if there is none that is closed."""
    start = text.rfind(_OPENED)
    depth = 0
    for place in range(start + len(_OPENED) - 1, len(text)) if start >= 0 else ():
        depth += (text[place] == "{") - (text[place] == "}")
        if not depth:
            return text[start + len(_OPENED) : place]
    return None
