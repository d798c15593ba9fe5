"""The remote backend, whose programs run on servers: `tirjudge sandbox serve`, or SandboxFusion's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_before_delay,
    wait_random_exponential,
)

from tirjudge_sandbox.base import Execution, Limits, Program, SandboxUnavailable, Status, validate
from tirjudge_sandbox.remote.endpoint import Endpoint, EndpointFailed, EndpointRefused
from tirjudge_sandbox.workers.fair_queue import FairQueue

URLS, TOKEN = "TIRJUDGE_SANDBOX_URL", "TIRJUDGE_SANDBOX_TOKEN"
"""Environment variables with the servers' URLs and their token."""
_DEFAULT_LIMITS = Limits()
_AHEAD = 2
"""Programs sent at once, in multiples of the servers' capacity, so that no server waits for the network."""
_backoff = wait_random_exponential(multiplier=0.1, max=2.0)


class RemoteSandbox:
    """A sandbox whose programs run on servers, each on the least busy one.

    A server that fails is left out and tried again later. If a server cannot be reached or is overloaded, the
    program is retried there or elsewhere, which costs it nothing but time. The result of a program is never
    retried. Cancelling `run` closes the connection, upon which this project's server kills the program; `run`
    does not wait for that.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        capacity: int | None = None,
        patience_seconds: float = 60.0,
        allow_weak_isolation: bool = False,
    ):
        """Raises ValueError for an invalid URL.

        `url`: one URL, several separated by commas, or a list; None means the environment variable
        TIRJUDGE_SANDBOX_URL. `token`: None means TIRJUDGE_SANDBOX_TOKEN, if set. `capacity`: programs that
        the servers run at once; None means the capacities that they report (16 for SandboxFusion, which
        reports none). `patience_seconds`: the longest time without an answer, beyond the program's wall
        limit, before the result is SANDBOX_FAILED. `allow_weak_isolation`: also accept servers that lack an
        isolation property or, like SandboxFusion, do not report them.
        """
        if url is None:
            url = os.environ.get(URLS, "")
        urls = url.split(",") if isinstance(url, str) else url
        token = token or os.environ.get(TOKEN)
        self._endpoints = [
            Endpoint(one.strip(), token, allow_weak_isolation=allow_weak_isolation)
            for one in urls
            if one.strip()
        ]
        self.capacity = capacity or len(self._endpoints)
        self._wanted = capacity
        self._patience = patience_seconds
        self._queue: FairQueue | None = None

    async def __aenter__(self) -> Self:
        """Ask each server what it is.

        Raises SandboxUnavailable if none answers, or if one isolates too weakly.
        """
        if not self._endpoints:
            raise SandboxUnavailable(f"no sandbox server is named: pass url=, or set {URLS}")
        try:
            await asyncio.gather(*(self._met(endpoint) for endpoint in self._endpoints))
            if not (met := [endpoint.capacity for endpoint in self._endpoints if endpoint.met]):
                failures = "; ".join(endpoint.failure for endpoint in self._endpoints)
                raise SandboxUnavailable(f"no sandbox server answers: {failures}")
        except BaseException:
            await self._close()
            raise
        # A server that does not answer yet is assumed to be as large as the largest other.
        missing = len(self._endpoints) - len(met)
        self.capacity = self._wanted or sum(met) + missing * max(met)
        self._queue = FairQueue(self.capacity * _AHEAD)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self._queue = None
        await self._close()

    async def run(self, program: Program, limits: Limits = _DEFAULT_LIMITS) -> Execution:
        """Run one program; see `Sandbox.run`.

        Also raises ValueError for limits beyond a server's, TypeError for bindings that are not JSON, and
        RuntimeError outside of `async with`.
        """
        validate(program, limits)
        if self._queue is None:
            raise RuntimeError("the sandbox is not open: use it inside `async with`")
        queue, clock = self._queue, asyncio.get_running_loop().time
        called = clock()
        await queue.acquire(program.client)
        try:
            execution = await self._answer(program, limits)
        except (EndpointFailed, EndpointRefused) as error:
            return Execution(status=Status.SANDBOX_FAILED, detail=str(error), queued_seconds=clock() - called)
        finally:
            queue.release()
        # The time on the network counts as queueing, since the program did not run.
        return replace(execution, queued_seconds=max(0.0, clock() - called - execution.wall_seconds))

    async def _answer(self, program: Program, limits: Limits) -> Execution:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(EndpointFailed),
            # Before, so that no wait which a server asks for is longer than the patience.
            stop=stop_before_delay(self._patience),
            wait=_wait,
            reraise=True,
        )
        return await attempts(self._attempt, program, limits)

    async def _attempt(self, program: Program, limits: Limits) -> Execution:
        return await self._least_busy().run(program, limits, self._patience)

    def _least_busy(self) -> Endpoint:
        usable = [endpoint for endpoint in self._endpoints if endpoint.usable]
        if not usable:
            raise EndpointFailed("; ".join(endpoint.failure for endpoint in self._endpoints))
        return min(usable, key=lambda endpoint: endpoint.running / endpoint.capacity)

    async def _met(self, endpoint: Endpoint) -> None:
        try:
            await endpoint.meet()
        except EndpointFailed:
            # The server may answer later: see `Endpoint.usable`.
            return
        except EndpointRefused as error:
            raise SandboxUnavailable(str(error)) from error

    async def _close(self) -> None:
        for endpoint in self._endpoints:
            await endpoint.close()


def _wait(state: RetryCallState) -> float:
    """Return the wait that the server asks for, or else an exponential one."""
    error = state.outcome.exception() if state.outcome else None
    requested = error.after_seconds if isinstance(error, EndpointFailed) else 0.0
    return max(requested, _backoff(state))
