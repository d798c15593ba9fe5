"""Callers of a served judge take turns: at the model, and for their programs.

A server names the caller of a request in `CALLER`. Without a server there is one caller, without a name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tirjudge.generation.base import Generator, Sampling, WrappedGenerator
from tirjudge_environments import Completion, Context
from tirjudge_sandbox import Execution, Limits, Program, Sandbox
from tirjudge_sandbox.base import OthersSandbox
from tirjudge_sandbox.server.guard import CALLER
from tirjudge_sandbox.workers.fair_queue import FairQueue, Pace


class Turns:
    """Places for work of the current caller; the next free place is for the caller that holds the fewest."""

    def __init__(self, places: int, further: int = 0) -> None:
        """`further` places are for callers that hold none, while several callers come."""
        self._queue, self._pace = FairQueue(places), Pace()
        self._queue.extend(further)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place while the context is open."""
        caller = CALLER.get()
        await self._queue.acquire(caller)
        try:
            if caller and self._queue.held(caller) > 1:
                # A caller's first piece of work is never what keeps the loop busy.
                await self._pace.start(caller)
            yield
        finally:
            self._queue.release(caller)


class FairGenerator(WrappedGenerator):
    """A generator at which callers take turns: at most `concurrency` turns of dialogues at once."""

    def __init__(self, generator: Generator, concurrency: int) -> None:
        super().__init__(generator)
        self._turns = Turns(concurrency)

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        async with self._turns.place():
            return await self._inner.generate(context, sampling)


class CallersSandbox(OthersSandbox):
    """A sandbox in which the programs of different callers take turns."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.capacity = sandbox.capacity

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        return await self._sandbox.run(replace(program, client=program.client or CALLER.get()), limits)
