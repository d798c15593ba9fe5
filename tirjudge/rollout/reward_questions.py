"""Questions that a reward depends on, put to another model: each once, and kept for a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from tirjudge.generation.base import ContextTooLong, Generator, GeneratorFailed, Sampling, Withheld
from tirjudge.generation.endpoint.http import Refused
from tirjudge.storage.run_folder import JsonLines, read_lines
from tirjudge_environments import Ask, Context, derive_seed

_READINGS = 3
"""How often a question is asked whose answer cannot be read."""
_LATER_TEMPERATURE = 0.7
"""At least, of every time but the first: a greedy answer would be the same again."""
_LONGEST_PAUSE = 30.0
_BAD_QUESTION = (400, 413, 422)
"""Statuses that refuse this question; any other refusal is one of all questions."""


class NotAnswered(GeneratorFailed):
    """The model that answers questions cannot be had; the text is one line and says why."""


class Asked:
    """Answers in a folder: `asked.jsonl`, and `asked-1.jsonl`, ... for further processes of one run.

    Each process appends to its own file, by key and model, and knows what all of them held when it began.
    Raises Locked while another process has the same rank there, ValueError for a file that is not ours.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        rows = (row for path in sorted(folder.glob("asked*.jsonl")) for row in read_lines(path))
        self._answers = {(row["model"], row["key"]): row["answer"] for row in rows}
        self._lines = JsonLines(folder / (f"asked-{rank}.jsonl" if rank else "asked.jsonl"))

    def of(self, model: str) -> dict[str, str]:
        """Key to answer."""
        return {key: answer for (by, key), answer in self._answers.items() if by == model}

    def keep(self, model: str, key: str, answer: str) -> None:
        """On return it is on the disk."""
        self._lines.append({"key": key, "model": model, "answer": answer})

    def close(self) -> None:
        self._lines.close()


class Asking:
    """Answers an environment's questions (`Environment.ask`) with any generator, all of them at once.

    An answer is kept under its question's key, in `kept` too if that is given: it is not asked for again, and
    `Environment.score` gives over that file the rewards that it gave in the run.
    No answer is ever made up. A model that is down is waited for; one that stays down, or refuses every
    question (a wrong key or address), raises NotAnswered. Belongs to one event loop.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        sampling: Sampling = Sampling(),
        kept: Asked | None = None,
        patience: float = 600.0,
        pause: float = 1.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """The seed of `sampling` is not used: every question has its own.

        `patience` are the seconds for which a model that is down is waited for, `pause` those before it is
        tried again (they double). `say` is told of whatever is waited for or left out.
        """
        self._generator, self._sampling, self._kept = generator, sampling, kept
        self._patience, self._pause, self._say = patience, pause, say
        self._asked: dict[str, asyncio.Task[str | None]] = {}
        self._down_since: float | None = None
        self._answers = {} if kept is None else kept.of(generator.model)

    async def answers(self, asks: Iterable[Ask]) -> dict[str, str]:
        """Key to answer. Raises NotAnswered.

        A question that the model cannot take (longer than its context, withheld by a filter) is left out, and
        an answer that stays unreadable is given as it is: either leaves a rollout unscored.
        """
        different = {ask.key: ask for ask in asks}
        found = await asyncio.gather(*(self._once(ask) for ask in different.values()))
        return {key: text for key, text in zip(different, found, strict=True) if text is not None}

    async def close(self) -> None:
        """Close the generator and the file."""
        await self._generator.close()
        if self._kept is not None:
            self._kept.close()

    async def _once(self, ask: Ask) -> str | None:
        """Whoever asks what is being asked waits for the same answer."""
        if ask.key in self._answers:
            return self._answers[ask.key]
        if ask.key not in self._asked:
            self._asked[ask.key] = asyncio.create_task(self._readable(ask))
        try:
            return await self._asked[ask.key]
        finally:
            self._asked.pop(ask.key, None)

    async def _readable(self, ask: Ask) -> str | None:
        text: str | None = None
        for attempt in range(_READINGS):
            text = await self._generate(ask, attempt)
            if text is None or ask.readable(text):
                break
        if text is not None:
            self._keep(ask, text)
        return text

    def _keep(self, ask: Ask, answer: str) -> None:
        self._answers[ask.key] = answer
        if self._kept is not None:
            self._kept.keep(self._generator.model, ask.key, answer)

    async def _generate(self, ask: Ask, attempt: int) -> str | None:
        """The model's words; None where it cannot take this question."""
        encoder = self._generator.encoder
        context = Context(ask.prompt, ids=tuple(encoder.prompt(ask.prompt)) if encoder else None)
        warmer = max(self._sampling.temperature, _LATER_TEMPERATURE)
        sampling = replace(
            self._sampling,
            seed=derive_seed(ask.key, attempt),
            temperature=warmer if attempt else self._sampling.temperature,
        )
        while True:
            try:
                completion = await self._generator.generate(context, sampling)
            except GeneratorFailed as error:
                if _is_of_the_question(error):
                    self._say(f"a question stays without an answer: {error}")
                    return None
                await self._wait(error)
            else:
                self._down_since = None
                return completion.text

    async def _wait(self, error: GeneratorFailed) -> None:
        now = asyncio.get_running_loop().time()
        name = self._generator.model
        if isinstance(error, Refused):
            raise NotAnswered(f"{name} answers no question: {error}") from None
        if self._down_since is None:
            self._down_since = now
            self._say(f"{name} does not answer, waiting for up to {self._patience:.0f} s: {error}")
        down = now - self._down_since
        if down >= self._patience:
            raise NotAnswered(f"{name} has not answered for {down:.0f} s: {error}") from None
        await asyncio.sleep(min(_LONGEST_PAUSE, max(self._pause, down)))


def _is_of_the_question(error: GeneratorFailed) -> bool:
    if isinstance(error, Refused):
        return error.status in _BAD_QUESTION
    return isinstance(error, ContextTooLong | Withheld)
