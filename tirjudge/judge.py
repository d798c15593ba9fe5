"""The Python interface: `Judge(...).compare`, `.score` and `.rank`, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from tirjudge.generation.base import Generator
from tirjudge.generation.spending import Spending
from tirjudge.judging.config import JudgeOptions
from tirjudge.judging.engine import JudgeEngine, Kind, MeteredCache, kind_for, local_weights, truncated
from tirjudge.judging.judgment import Judgment
from tirjudge.rollout.concurrency import EventLoopThread
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import read_task
from tirjudge_environments.types import derive_seed
from tirjudge_sandbox import Sandbox

Conversation = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages with `role` and `content`."""


class Judge:
    """A judge that may run programs before it answers.

    ```python
    with Judge(model="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1") as judge:
        result = judge.compare("Name a prime above 10.", "11", "12")
        result.verdict, result.choice      # "A", 0
    ```

    `compare`, `score` and `rank` block, and also work inside a running event loop (a notebook); `acompare`,
    `ascore` and `arank` are awaited. All work runs in one thread of the judge, and concurrent calls run
    concurrently. A failure of the model or of the sandbox is a Judgment without a verdict whose `stop` and
    `detail` say why. The judge opens at the first call; close it, or use it as a context manager.
    """

    spending: Spending
    """Calls, tokens, seconds and, with prices, the cost since the judge was created."""

    def __init__(
        self,
        model: str = "",
        base_url: str | None = None,
        *,
        generator: Generator | str | None = None,
        sandbox: Sandbox | None = None,
        api_key: str | None = None,
        **options: Any,
    ) -> None:
        """`options` are the fields of JudgeOptions; without a model the embedded one judges.

        Without a `base_url`, OPENAI_BASE_URL is used for a named model that is not on this machine.

        A `format` other than TIR-Judge's fixes the number of responses: the methods raise ValueError for
        another number. With `max_cost` they raise CostReached instead of exceeding it.

        A `generator` object replaces the model and is left open; a generator's name selects the engine that
        runs the model. A `sandbox` must not be open yet: it is opened and closed with the judge. `api_key` is
        the endpoint's; without it the key comes from TIRJUDGE_API_KEY or OPENAI_API_KEY. Raises ValueError,
        in one line, for an invalid option.
        """
        if isinstance(generator, str):
            # A name is one of the options; an object replaces the generator that they describe.
            options["generator"], generator = generator, None
        if base_url is not None:
            options["base_url"] = base_url
        try:
            self.options = JudgeOptions(model=model, **options)
        except ValidationError as error:
            raise ValueError(first_fault(error)) from None
        if generator is not None and self.options.cache:
            raise ValueError("cache needs a model's name: completions of a generator object are not cached")
        self.spending = Spending(price=self.options.price(), limit=self.options.max_cost)
        self._engine = JudgeEngine(
            self.options.config,
            generator=generator,
            sandbox=sandbox,
            around=self._metered,
            api_key=api_key,
        )
        self._thread: EventLoopThread | None = None
        self._opening: asyncio.Lock | None = None
        self._opened = False

    def compare(self, prompt: Conversation, a: str, b: str) -> Judgment:
        """Choose the better of two responses. Raises ValueError for an invalid prompt, and as `open` does."""
        return self._wait(prompt, [a, b], "pairwise")

    def score(self, prompt: Conversation, response: str) -> Judgment:
        """Score one response from 1 to 10: `.score`."""
        return self._wait(prompt, [response], "pointwise")

    def rank(self, prompt: Conversation, responses: Sequence[str], *, pointwise: bool = False) -> Judgment:
        """Choose the best response; with `pointwise` each is scored alone, and `.ranking` orders all."""
        return self._wait(prompt, responses, "pointwise" if pointwise else None)

    async def acompare(self, prompt: Conversation, a: str, b: str) -> Judgment:
        """Choose the better of two responses, as `compare` does."""
        return await self._await(prompt, [a, b], "pairwise")

    async def ascore(self, prompt: Conversation, response: str) -> Judgment:
        """Score one response, as `score` does."""
        return await self._await(prompt, [response], "pointwise")

    async def arank(
        self, prompt: Conversation, responses: Sequence[str], *, pointwise: bool = False
    ) -> Judgment:
        """Choose the best response or rank all of them, as `rank` does."""
        return await self._await(prompt, responses, "pointwise" if pointwise else None)

    def open(self) -> Self:
        """Load the model and start the sandbox now.

        Raises GeneratorFailed, SandboxUnavailable or ValueError, each with one line that says what to do.
        """
        self._loop().run(self._ready())
        return self

    def close(self) -> None:
        """Free the model, end the sandbox and the thread; a later call opens them again."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.run(self._shut())
            thread.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.wrap_future(self._loop().submit(self._ready()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def _metered(self, generator: Generator) -> Generator:
        # Digest the weights only for a cache: that reads every file of the model.
        weights = local_weights(self.options) if self.options.cache else ""
        return MeteredCache(self.options, self.spending, weights)(generator)

    def _wait(self, prompt: Conversation, responses: Sequence[str], kind: Kind | None) -> Judgment:
        return self._loop().run(self._judge(prompt, responses, kind))

    async def _await(self, prompt: Conversation, responses: Sequence[str], kind: Kind | None) -> Judgment:
        return await asyncio.wrap_future(self._loop().submit(self._judge(prompt, responses, kind)))

    async def _judge(self, prompt: Conversation, responses: Sequence[str], kind: Kind | None) -> Judgment:
        messages = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
        # The order shown and every draw depend on the id: the same question gets the same answer.
        name = f"{derive_seed(repr(messages), *responses):08x}"
        task = read_task({"prompt": messages, "responses": list(responses)}, default_id=name)
        await self._ready()
        return await self._engine.judge(truncated(task, self.options.truncate), kind or kind_for(task))

    def _loop(self) -> EventLoopThread:
        if self._thread is None:
            self._thread = EventLoopThread("tirjudge-judge")
            # The lock belongs to the loop of the new thread.
            self._opening, self._opened = asyncio.Lock(), False
        return self._thread

    async def _ready(self) -> None:
        assert self._opening is not None
        async with self._opening:
            if not self._opened:
                await self._engine.__aenter__()
                self._opened = True

    async def _shut(self) -> None:
        if self._opened:
            self._opened = False
            await self._engine.__aexit__(None, None, None)
