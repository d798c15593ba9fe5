"""The default backend: warm workers on this machine, each in namespaces of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from tirjudge_sandbox.base import Execution, Limits, Program, SandboxUnavailable, Status
from tirjudge_sandbox.validation import check
from tirjudge_sandbox.worker import Worker, WorkerFailed


class LocalSandbox:
    """At most `capacity` programs at once on this machine; the rest wait in order.

    Covered: the host's files, environment, processes and network; the limits; other programs, before, after and
    beside. Not covered: side channels, and kernel bugs below the system call filter.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        preload: Sequence[str] = ("numpy", "sympy"),
        allow_weak_isolation: bool = False,
    ):
        """`capacity`: from 1 up, None means one per usable CPU. `preload`: modules that every program finds loaded,
        left out where they are not installed. `allow_weak_isolation`: run even where a property cannot be had.
        """
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity or len(os.sched_getaffinity(0))
        self._preload = tuple(preload)
        self._allow_weak = allow_weak_isolation
        self._placement = "root" if os.geteuid() == 0 else "userns"
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._turns = asyncio.Semaphore(self.capacity)
        self._open = False

    async def __aenter__(self) -> Self:
        """Start the first worker. Raises SandboxUnavailable where the machine cannot give a property."""
        try:
            worker = await self._start(Limits().disk_bytes)
        except WorkerFailed as error:
            raise SandboxUnavailable(f"no worker could be started here ({self._placement}): {error}") from error
        missing = worker.isolation.missing
        if missing and not self._allow_weak:
            await worker.kill()
            raise SandboxUnavailable(f"this machine does not give: {', '.join(missing)}")
        self._idle.append(worker)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every worker and what runs in it."""
        self._open = False
        for worker in [*self._idle, *self._busy]:
            await worker.kill()
        self._idle.clear()

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        """Run one program; see `Sandbox.run`. Raises RuntimeError outside of `async with`."""
        check(program, limits)
        if not self._open:
            raise RuntimeError("the sandbox is not open: use it inside `async with`")
        loop = asyncio.get_running_loop()
        called = loop.time()
        async with self._turns:
            try:
                worker = await self._take(limits.disk_bytes)
            except WorkerFailed as error:
                return Execution(status=Status.SANDBOX_FAILED, detail=f"no worker could be started: {error}")
            queued = loop.time() - called
            self._busy.add(worker)
            try:
                return replace(await worker.run(program, limits), queued_seconds=queued)
            finally:
                self._busy.discard(worker)
                if not worker.broken:
                    self._idle.append(worker)

    async def _take(self, disk_bytes: int) -> Worker:
        """A living worker whose scratch folder has the wanted size, started where there is none."""
        for worker in reversed(self._idle):
            if worker.disk_bytes == disk_bytes and worker.alive:
                self._idle.remove(worker)
                return worker
        # The others are lost, or of another size: at most `capacity` may stand.
        while self._idle and len(self._idle) + len(self._busy) >= self.capacity:
            await self._idle.pop(0).kill()
        return await self._start(disk_bytes)

    async def _start(self, disk_bytes: int) -> Worker:
        return await Worker.start(self._placement, self._preload, disk_bytes)
