"""The judge for people: `Judge(...).compare`, `.score` and `.rank`, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from collections.abc import Sequence
from pydantic import ValidationError
from tirjudge.generation.base import Generator
from tirjudge.judging import JudgeConfig
from tirjudge.judging import Judging
from tirjudge.judging import Kind
from tirjudge.judging import kind_for
from tirjudge.judgment import Judgment
from tirjudge.rollout.concurrency import LoopThread
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tasks import read_task
from tirjudge_environments.types import derive_seed
from tirjudge_sandbox import Sandbox
from types import TracebackType
from typing import Any
from typing import Self

Conversation = str | Sequence[Mapping[str, Any]]
"""A text, or chat messages with `role` and `content`."""


class Judge:
    """A judge that may run programs before it answers.

    ```python
    with Judge(model="Qwen/Qwen3-8B", base_url="http://localhost:8000/v1") as judge:
        result = judge.compare("Name a prime above 10.", "11", "12")
        result.verdict, result.choice      # "A", 0
    ```

    The methods without `a` in front wait, and work inside a running event loop too (a notebook); those with
    it are awaited. All work runs in one thread of the judge's own, as many calls at once as are made. A
    failure of the model or of the sandbox is a Judgment without a verdict whose `stop` and `detail` say why.
    Opened at the first call; close it, or use it as a context manager.
    """

    def __init__(
        self,
        model: str = "",
        base_url: str = "",
        *,
        generator: Generator | str | None = None,
        sandbox: Sandbox | None = None,
        **options: Any,
    ) -> None:
        """`options` are the fields of JudgeConfig; without a model the embedded one judges.

        A `format` other than TIR-Judge's says how many responses it takes: the methods raise ValueError for
        another number.

        A `generator` is used in place of a model and left open, or is the name of what runs the model; a
        `sandbox` that is not open yet is opened and closed with the judge. Raises ValueError, in one line,
        for an option that cannot be.
        """
        if isinstance(generator, str):
            options["generator"], generator = generator, None
        try:
            config = JudgeConfig(model=model, base_url=base_url, **options)
        except ValidationError as error:
            raise ValueError(first_fault(error)) from None
        self._judging = Judging(config, generator=generator, sandbox=sandbox)
        self._thread: LoopThread | None = None
        self._opening: asyncio.Lock | None = None
        self._opened = False

    def compare(self, prompt: Conversation, a: str, b: str) -> Judgment:
        """Which of two responses is better. Raises ValueError for what is no prompt, and as `open` does."""
        return self._wait(prompt, [a, b], "pairwise")

    def score(self, prompt: Conversation, response: str) -> Judgment:
        """A score from 1 to 10 for one response: `.score`."""
        return self._wait(prompt, [response], "pointwise")

    def rank(self, prompt: Conversation, responses: Sequence[str], *, pointwise: bool = False) -> Judgment:
        """The best of several responses; with `pointwise` each is scored alone, and `.ranking` orders all."""
        return self._wait(prompt, responses, "pointwise" if pointwise else None)

    async def acompare(self, prompt: Conversation, a: str, b: str) -> Judgment:
        return await self._await(prompt, [a, b], "pairwise")

    async def ascore(self, prompt: Conversation, response: str) -> Judgment:
        return await self._await(prompt, [response], "pointwise")

    async def arank(
        self, prompt: Conversation, responses: Sequence[str], *, pointwise: bool = False
    ) -> Judgment:
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
        return await self._judging.judge(task, kind or kind_for(task))

    def _loop(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread("tirjudge-judge")
            self._opening, self._opened = asyncio.Lock(), False
        return self._thread

    async def _ready(self) -> None:
        assert self._opening is not None
        async with self._opening:
            if not self._opened:
                await self._judging.__aenter__()
                self._opened = True

    async def _shut(self) -> None:
        if self._opened:
            self._opened = False
            await self._judging.__aexit__(None, None, None)
