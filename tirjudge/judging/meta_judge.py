"""The MetaJudge and other models that a run asks: configuration, calls, and a cache on disk for a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from tirjudge.generation.base import (
    ContextTooLong,
    Generator,
    GeneratorFailed,
    Sampling,
    SamplingOptions,
    Withheld,
)
from tirjudge.generation.endpoint.options import EndpointOptions
from tirjudge.generation.endpoint.refusals import EndpointRefused
from tirjudge.generation.local.transformers import TransformersGenerator
from tirjudge.judging.options import endpoint_key
from tirjudge.storage.json_lines import JsonLines, read_lines
from tirjudge.storage.run_settings import MOVABLE
from tirjudge_environments import Completion, Context, Encoder, Finish, Question, derive_seed


class AskedModel(EndpointOptions):
    """A model and how to reach it. The key of an endpoint comes from the environment."""

    model: Annotated[str, Field(min_length=1)]
    """Folder, hub id, or an endpoint's name of the model."""
    max_tokens: Annotated[int, Field(gt=0)] = 8192
    """Tokens of one answer, its reasoning included."""
    patience: Annotated[float, Field(ge=0), MOVABLE] = 600.0
    """Seconds to wait for an endpoint that is down before the run stops."""

    def generator(self) -> Generator:
        """Return the generator; a local model is loaded at the first question.

        Raises ValueError for an invalid address, and for request fields without one.
        """
        if not self.base_url:
            if self.request_fields:
                raise ValueError("request_fields are sent to an endpoint: set base_url")
            return _Local(self.model, self.concurrency)
        return self.open_endpoint(endpoint_key())


class MetaJudgeConfig(AskedModel, SamplingOptions):
    """The model that answers the questions of a reward.

    The rationale paper trains with Qwen3-30B-A3B-Instruct-2507 and evaluates with
    Qwen3-235B-A22B-Instruct-2507 and DeepSeek-R1 (sections 3.1, 4.2 and 4.5).
    """

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Temperature of the first attempt (our choice); an unreadable answer is retried at 0.7 or more."""

    def open(
        self, *, kept: AnswerStore | None = None, say: Callable[[str], None] = lambda line: None
    ) -> RewardQuestions:
        """Return the open MetaJudge; a local model is loaded at the first question.

        Raises ValueError for an invalid address.
        """
        return RewardQuestions(
            self.generator(),
            sampling=Sampling.of(self, max_tokens=self.max_tokens),
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


_ATTEMPTS = 3
"""The most attempts at a question whose answer cannot be parsed."""
_RETRY_TEMPERATURE = 0.7
"""The lowest temperature of a retry, since a greedy retry would give the same answer."""
_LONGEST_PAUSE = 30.0
"""Seconds between two attempts at a model that is down."""
_BAD_QUESTION = (400, 413, 422)
"""Statuses that reject this one question; any other refusal would apply to every question."""


class NotAnswered(GeneratorFailed):
    """The model that answers questions is not available; the message is one line and says why."""


class AnswerStore:
    """Answers on disk, by question key and model.

    The folder has `asked.jsonl`, and `asked-1.jsonl`, ... for further processes of one run. Each process of a
    run appends to its own file, and has read all of the files when it starts. Raises Locked while another
    process with the same rank uses the folder, and ValueError for a file that is not JSON lines.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        rows = (row for path in sorted(folder.glob("asked*.jsonl")) for row in read_lines(path))
        self._answers = {(row["model"], row["key"]): row["answer"] for row in rows}
        self._lines = JsonLines(folder / (f"asked-{rank}.jsonl" if rank else "asked.jsonl"))

    def of(self, model: str) -> dict[str, str]:
        """Return the stored answers of one model, by question key."""
        return {key: answer for (by, key), answer in self._answers.items() if by == model}

    def keep(self, model: str, key: str, answer: str) -> None:
        """Store an answer; returns once the answer is on the disk."""
        self._lines.append({"key": key, "model": model, "answer": answer})

    def close(self) -> None:
        self._lines.close()


class RewardQuestions:
    """Answers the questions of an environment (`Environment.questions`) concurrently, with a generator.

    Every question is asked once: its answer is cached under its key, and in the store `kept` if there is one,
    so that `Environment.score` computes the same rewards from that file later. No answer is ever made up. A
    model that is down is retried; a model that stays down, or refuses every question (wrong key or address),
    raises NotAnswered. Belongs to one event loop.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        sampling: Sampling = Sampling(),
        kept: AnswerStore | None = None,
        patience: float = 600.0,
        pause: float = 1.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Give up a model that is down for `patience` seconds; the `pause` before a retry doubles.

        The seed of `sampling` is not used, since every question has its own. `say` is called with one line
        for every wait, and for every question that is dropped.
        """
        self._generator, self._sampling, self._kept = generator, sampling, kept
        self._patience, self._pause, self._say = patience, pause, say
        self._in_flight: dict[str, asyncio.Task[str | None]] = {}
        self._down_since: float | None = None
        self._answers = {} if kept is None else kept.of(generator.model)

    async def answers(self, questions: Iterable[Question]) -> dict[str, str]:
        """Return the answers by question key. Raises NotAnswered.

        A question that the model cannot take (longer than its context, or blocked by a content filter) is
        dropped, and an answer that stays unparsable is returned as it is: both leave a rollout unscored.
        """
        different = {question.key: question for question in questions}
        answers = await asyncio.gather(*(self._once(question) for question in different.values()))
        return {key: text for key, text in zip(different, answers, strict=True) if text is not None}

    async def close(self) -> None:
        """Cancel the requests that nobody waits for any more, and close the generator and the store."""
        asked = tuple(self._in_flight.values())
        for request in asked:
            request.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await self._generator.close()
        if self._kept is not None:
            self._kept.close()

    async def _once(self, question: Question) -> str | None:
        if question.key in self._answers:
            return self._answers[question.key]
        # Rollouts that ask the same question at the same time share one request.
        if question.key not in self._in_flight:
            asked = asyncio.create_task(self._readable(question))
            self._in_flight[question.key] = asked
            asked.add_done_callback(lambda _: self._in_flight.pop(question.key))
        # Shielded, since a cancelled rollout must not cancel the answer to others.
        return await asyncio.shield(self._in_flight[question.key])

    async def _readable(self, question: Question) -> str | None:
        text: str | None = None
        for attempt in range(_ATTEMPTS):
            text = await self._generate(question, attempt)
            if text is None or question.readable(text):
                break
        # Kept even if it cannot be parsed, so that a replay gives the same scores.
        if text is not None:
            self._keep(question, text)
        return text

    def _keep(self, question: Question, answer: str) -> None:
        self._answers[question.key] = answer
        if self._kept is not None:
            self._kept.keep(self._generator.model, question.key, answer)

    async def _generate(self, question: Question, attempt: int) -> str | None:
        """Return the model's answer; None if it cannot take this question."""
        encoder = self._generator.encoder
        context = Context(question.prompt, ids=tuple(encoder.prompt(question.prompt)) if encoder else None)
        warmer = max(self._sampling.temperature, _RETRY_TEMPERATURE)
        sampling = self._sampling.model_copy(
            update={
                # A function of question and attempt, so that the order of questions changes no answer.
                "seed": derive_seed(question.key, attempt),
                "temperature": warmer if attempt else self._sampling.temperature,
            }
        )
        while True:
            try:
                completion = await self._generator.generate(context, sampling)
            except GeneratorFailed as error:
                if rejects_the_question(error):
                    self._say(f"dropped a question that the model cannot answer: {error}")
                    return None
                await self._wait(error)
            else:
                if completion.finish is Finish.UNKNOWN and not question.readable(completion.text):
                    word = completion.finish_word
                    await self._wait(GeneratorFailed(f"its answer ended for an unknown reason ({word})"))
                    continue
                self._down_since = None
                return completion.text

    async def _wait(self, error: GeneratorFailed) -> None:
        now = asyncio.get_running_loop().time()
        name = self._generator.model
        # A wrong key or address does not become right by waiting.
        if isinstance(error, EndpointRefused):
            raise NotAnswered(f"{name} refuses all questions: {error}") from None
        if self._down_since is None:
            self._down_since = now
            self._say(f"{name} does not answer, retrying for up to {self._patience:.0f} s: {error}")
        down = now - self._down_since
        if down >= self._patience:
            raise NotAnswered(f"{name} has not answered for {down:.0f} s: {error}") from None
        await asyncio.sleep(min(_LONGEST_PAUSE, max(self._pause, down)))


def rejects_the_question(error: GeneratorFailed) -> bool:
    """Return True for an error of this question alone; another question may be answered."""
    if isinstance(error, EndpointRefused):
        return error.status in _BAD_QUESTION
    return isinstance(error, ContextTooLong | Withheld)
