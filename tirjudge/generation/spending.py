"""The cost of a run: a ledger of calls, tokens, seconds and money, and a generator that books its calls."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tirjudge.generation.base import Generator, GeneratorFailed, Sampling, WrappedGenerator
from tirjudge.storage.json_lines import line_end, read_lines
from tirjudge_environments import Completion, Context, Usage

_MILLION = 1_000_000
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND
_SHORTEST = 0.001
"""Seconds in a queue that are worth a field."""
_SHOWN = 0.05
"""Seconds in the queue, on average, that are shown."""
_TEMPLATE_TOKENS = 64
"""An upper bound of the tokens that a chat template adds to one message."""


class CostReached(RuntimeError):
    """The next call could exceed the limit, which is the option `max_cost` of `Judge`.

    The text says how much was spent.
    """


@dataclass(frozen=True, slots=True)
class Price:
    """Money per million tokens, in any currency."""

    prompt: float
    completion: float
    source: str = ""
    """The origin of a price in US dollars that was looked up; empty for the user's own price."""
    cached: float | None = None
    """The price of prompt tokens from the provider's cache; None if equal to `prompt`."""

    def of(self, usage: Usage) -> float:
        """Return the cost of tokens."""
        discount = 0.0 if self.cached is None else self.prompt - self.cached
        cost = usage.prompt_tokens * self.prompt - usage.cached_tokens * discount
        return (cost + usage.completion_tokens * self.completion) / _MILLION


FREE = Price(0.0, 0.0)


def known_price(model: str, base_url: str) -> Price | None:
    """Return the price of a hosted model by the library genai-prices, at its endpoint's address.

    None without the library, and for an endpoint or model that it does not know: a model's name alone does
    not say who bills for it. The library's own data is used; nothing is downloaded.
    """
    host = urlsplit(base_url).hostname or ""
    # The library takes seconds to load, and cannot know an address on this network.
    if host == "localhost" or host.rpartition(".")[2].isdigit() or "." not in host:
        return None
    try:
        from genai_prices import Usage as Tokens
        from genai_prices import calc_price
    except ImportError:
        return None
    try:
        short, long = (
            calc_price(Tokens(input_tokens=count, output_tokens=1000), model, provider_api_url=base_url)
            for count in (1000, _MILLION)
        )
    except (LookupError, ValueError):
        return None
    source = f"genai-prices {version('genai-prices')}, {short.model.name or model} at {short.provider.name}"
    # Some models cost more from a length of the prompt on, which hardly any row reaches.
    if long.input_price != short.input_price * 1000:
        source += ", without its surcharge for long prompts"
    cached = calc_price(Tokens(input_tokens=1000, cache_read_tokens=1000), model, provider_api_url=base_url)
    return Price(
        float(short.input_price) * 1000,
        float(short.output_price) * 1000,
        source,
        float(cached.input_price) * 1000,
    )


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
        prices: Mapping[str, Price] | None = None,
        limit: float | None = None,
        overwrite: bool = False,
    ) -> None:
        """Without a path nothing is stored. With `overwrite`, the first call replaces those of earlier runs.

        `prices` has the price of each model by its name; without them there is no cost. Raises ValueError for
        a limit without prices, and OSError.
        """
        if limit is not None and not prices:
            raise ValueError(
                "a cost limit needs a price of a million tokens: give --price-in and --price-out"
            )
        self.prices, self._limit = dict(prices or {}), limit
        self.calls = 0
        self.seconds = 0.0
        """Seconds in which the model worked on calls, added up: calls at the same time count each."""
        self.queued = 0.0
        """Seconds that calls waited in queues, as far as known."""
        self.usages: dict[str, Usage] = {}
        """The tokens of each model's calls, by its name."""
        self._reserved = 0.0
        self._begun: dict[object, float] = {}
        """The monotonic time at which each call in flight began."""
        self._settled = asyncio.Event()
        self._path, self._replaces = path, overwrite
        self._descriptor = None if path is None else os.open(path, _FLAGS, 0o666)
        for line in read_lines(path) if path is not None and not overwrite else ():
            used = Usage(line["prompt_tokens"], line["completion_tokens"], line.get("cached_tokens", 0))
            self._add(used, line["seconds"], line.get("model", ""), line.get("queued", 0.0))
        if self._descriptor is not None and not overwrite:
            # A crash may have left a part of a line, which the next line would be joined to.
            size = os.fstat(self._descriptor).st_size
            os.ftruncate(self._descriptor, line_end(self._descriptor, size))

    @property
    def usage(self) -> Usage:
        """The tokens of all calls."""
        return sum(self.usages.values(), Usage())

    @property
    def cost(self) -> float | None:
        """Money spent so far; None without prices."""
        if not self.prices:
            return None
        return sum(self.price_of(model).of(usage) for model, usage in self.usages.items())

    def price_of(self, model: str) -> Price:
        """Return the price of a model; the highest price of all for a name without a price."""
        known = self.prices.values() or (FREE,)
        return self.prices.get(model) or max(known, key=lambda price: price.prompt + price.completion)

    @property
    def times(self) -> str:
        """The seconds of a call on average, at work and before in the queue; empty without calls."""
        if not self.calls:
            return ""
        work, queue = self.seconds / self.calls, self.queued / self.calls
        return f"{work:.1f} s each" + (f" after {queue:.1f} s in the queue" if queue >= _SHOWN else "")

    @property
    def waiting(self) -> tuple[int, float]:
        """Return the number of unanswered calls, and the seconds since the first such call began."""
        begun = list(self._begun.values())
        return len(begun), time.monotonic() - min(begun) if begun else 0.0

    @asynccontextmanager
    async def reserved(self, most: Usage, model: str = "") -> AsyncIterator[None]:
        """Reserve the cost of a call of at most `most` tokens; raises CostReached if it can never fit."""
        cost = self.price_of(model).of(most)
        while self._limit is not None and (self.cost or 0.0) + self._reserved + cost > self._limit:
            if not self._begun:
                raise CostReached(
                    f"{self.cost:.4f} of {self._limit:g} are spent, and the next call may cost {cost:.4f}"
                )
            if self._settled.is_set():
                # A new event, since a judge that was closed and opened again has another event loop.
                self._settled = asyncio.Event()
            await self._settled.wait()
        call = object()
        self._begun[call] = time.monotonic()
        self._reserved += cost
        try:
            yield
        finally:
            del self._begun[call]
            # Exactly 0 when idle, so that rounding errors of the subtractions cannot add up.
            self._reserved = self._reserved - cost if self._begun else 0.0
            self._settled.set()

    def add(self, usage: Usage, seconds: float, model: str = "", queued: float = 0.0) -> None:
        """Book a call that a model answered after `seconds` of work, before which it waited for its turn."""
        # A resumed run adds up what the file has: the same sum as this one's.
        seconds, queued = round(seconds, 4), round(queued, 4) if queued >= _SHORTEST else 0.0
        if self._descriptor is not None:
            if self._replaces:
                os.ftruncate(self._descriptor, 0)
                self._replaces = False
            line = {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                **({"cached_tokens": usage.cached_tokens} if usage.cached_tokens else {}),
                "seconds": seconds,
                **({"queued": queued} if queued else {}),
                **({"model": model} if model else {}),
            }
            # One write to a file opened for appending: a kill leaves a whole line or none.
            encoded, before = json.dumps(line).encode() + b"\n", os.fstat(self._descriptor).st_size
            if os.write(self._descriptor, encoded) < len(encoded):
                os.ftruncate(self._descriptor, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._add(usage, seconds, model, queued)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # A refused run leaves nothing behind.
        empty = self._descriptor is not None and not os.fstat(self._descriptor).st_size
        if error is not None and self._path is not None and empty:
            self._path.unlink(missing_ok=True)
        self.close()

    def _add(self, usage: Usage, seconds: float, model: str, queued: float) -> None:
        self.calls += 1
        self.usages[model] = self.usages.get(model, Usage()) + usage
        self.seconds += seconds
        self.queued += queued


class MeteredGenerator(WrappedGenerator):
    """A generator that books every call of `inner` in `spending`.

    A call that fails or is cancelled counts only tokens that the endpoint reported. If the generator counts
    no tokens, a call counts at its maximum cost.
    """

    def __init__(self, inner: Generator, spending: Spending, name: str = "") -> None:
        """`name` is the model's in the ledger, if several models share it."""
        super().__init__(inner)
        self._spending, self._name = spending, name

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        """Return a completion; raises CostReached instead of exceeding the limit."""
        most = Usage(_prompt_bound(context), sampling.max_tokens)
        async with self._spending.reserved(most, self._name):
            started = time.monotonic()
            try:
                completion = await self._inner.generate(context, sampling)
            except GeneratorFailed as error:
                if error.usage != Usage():
                    self._spending.add(error.usage, time.monotonic() - started, self._name)
                raise
            counted = completion.usage if completion.usage != Usage() else most
            # A row of a dialogue may wait in the queue of a local model for most of its time.
            queued = completion.queued_seconds
            self._spending.add(counted, time.monotonic() - started - queued, self._name, queued)
        return completion


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
