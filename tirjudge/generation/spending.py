"""The cost of a run: a ledger of calls, tokens, seconds and money, and a generator that books its calls."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tirjudge.generation.base import Generator, Sampling
from tirjudge.storage.run_folder import read_lines
from tirjudge_environments import Completion, Context, Encoder, Usage

_MILLION = 1_000_000
_TEMPLATE_TOKENS = 64
"""An upper bound of the tokens that a chat template adds to one message."""


class CostReached(RuntimeError):
    """The next call could exceed the limit; the text says how much was spent."""


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens, in any currency."""

    prompt: float
    completion: float

    def of(self, usage: Usage) -> float:
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / _MILLION


class Spending:
    """A ledger of model calls; each gets a line in `path` before its answer is used, so a kill loses none.

    Calls of earlier runs in the same file count too. With a limit, a call begins only when its highest
    possible cost still fits after the costs so far and the highest costs of the calls in flight. Belongs to
    one event loop; a context manager.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        price: Price | None = None,
        limit: float | None = None,
        overwrite: bool = False,
    ) -> None:
        """Without a path nothing is stored. Raises ValueError for a limit without a price, and OSError."""
        if limit is not None and price is None:
            raise ValueError(
                "a cost limit needs a price of a million tokens: give --price-in and --price-out"
            )
        self.price, self._limit = price, limit
        self.calls = 0
        self.usage, self.seconds = Usage(), 0.0
        self._reserved, self._in_flight = 0.0, 0
        self._settled = asyncio.Event()
        self._descriptor = None if path is None else _opened(path, overwrite)
        for line in read_lines(path) if path is not None else ():
            self._add(Usage(line["prompt_tokens"], line["completion_tokens"]), line["seconds"])

    @property
    def cost(self) -> float | None:
        """Money spent so far; None without a price."""
        return None if self.price is None else self.price.of(self.usage)

    @asynccontextmanager
    async def reserved(self, most: Usage) -> AsyncIterator[None]:
        """Reserve the cost of a call of at most `most` tokens; raises CostReached if it can never fit."""
        cost = 0.0 if self.price is None else self.price.of(most)
        while self._limit is not None and (self.cost or 0.0) + self._reserved + cost > self._limit:
            if not self._in_flight:
                raise CostReached(
                    f"{self.cost:.4f} of {self._limit:g} are spent, and the next call may cost {cost:.4f}"
                )
            if self._settled.is_set():
                # A new event, since a judge that was closed and opened again has another event loop.
                self._settled = asyncio.Event()
            await self._settled.wait()
        self._in_flight += 1
        self._reserved += cost
        try:
            yield
        finally:
            self._in_flight -= 1
            # Exactly 0 when idle, so that rounding errors of the subtractions cannot add up.
            self._reserved = self._reserved - cost if self._in_flight else 0.0
            self._settled.set()

    def add(self, usage: Usage, seconds: float) -> None:
        """Book a call that was answered."""
        if self._descriptor is not None:
            line = {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "seconds": round(seconds, 4),
            }
            # One write to a file opened for appending: a kill leaves a whole line or none.
            os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        self._add(usage, seconds)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, usage: Usage, seconds: float) -> None:
        self.calls += 1
        self.usage += usage
        self.seconds += seconds


def _opened(path: Path, overwrite: bool) -> int:
    truncate = os.O_TRUNC if overwrite else 0
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | truncate, 0o666)


class MeteredGenerator:
    """A generator that books every call of another one in `spending`.

    A call that fails or is cancelled counts nothing, because its cost is not known. If the endpoint does not
    count tokens, a call counts the most that it could have cost.
    """

    def __init__(self, inner: Generator, spending: Spending) -> None:
        self._inner, self._spending = inner, spending

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def encoder(self) -> Encoder | None:
        return self._inner.encoder

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Return a completion; raises CostReached instead of exceeding the limit."""
        most = Usage(_prompt_bound(context), sampling.max_tokens)
        async with self._spending.reserved(most):
            started = time.monotonic()
            completion = await self._inner.generate(context, sampling)
            counted = completion.usage if completion.usage != Usage() else most
            self._spending.add(counted, time.monotonic() - started)
        return completion

    async def close(self) -> None:
        await self._inner.close()


def _prompt_bound(context: Context) -> int:
    """Return the most tokens that the context can have: a token holds at least one byte."""
    if context.ids is not None:
        return len(context.ids)
    prompt = context.prompt
    texts = [message.content for message in prompt.messages]
    texts += [prompt.prefill, *(json.dumps(asdict(tool)) for tool in prompt.tools)]
    for segment in context.segments:
        texts += [segment.text, segment.reasoning, *(call.arguments for call in segment.tool_calls)]
    return sum(len(text.encode(errors="surrogatepass")) + _TEMPLATE_TOKENS for text in texts if text)
