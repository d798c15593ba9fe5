"""The default backend: warm workers on this machine, each in namespaces of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from tirjudge_sandbox import placements
from tirjudge_sandbox.base import Execution, Limits, Program, SandboxUnavailable, Status
from tirjudge_sandbox.validation import check
from tirjudge_sandbox.worker import Worker, WorkerFailed

_CLOSED = "the sandbox is not open: use it inside `async with`"


class LocalSandbox:
    """At most `capacity` programs at once on this machine; the rest wait in order.

    Covered: the host's files, environment, processes and network; the limits; other programs, before, after
    and beside. Not covered: side channels, and kernel bugs below the system call filter.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        preload: Sequence[str] = ("numpy", "sympy"),
        allow_weak_isolation: bool = False,
    ):
        """`capacity`: from 1 up, None means one per usable CPU. `preload`: modules that every program finds
        loaded, where they are installed. `allow_weak_isolation`: run even where a property cannot be had.
        """
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity or len(os.sched_getaffinity(0))
        self._preload = tuple(preload)
        self._allow_weak = allow_weak_isolation
        self._placement: str | None = None
        self._idle: list[Worker] = []
        self._taken: set[Worker] = set()
        self._turns = asyncio.Semaphore(self.capacity)

    async def __aenter__(self) -> Self:
        """Start the first worker. Raises SandboxUnavailable where the machine cannot give a property."""
        failures = []
        for placement in placements.candidates(allow_weak=self._allow_weak):
            try:
                worker = await Worker.start(placement, self._preload, Limits().disk_bytes)
            except WorkerFailed as error:
                failures.append(f"{placement}: {error}")
                continue
            if not worker.isolation.missing or self._allow_weak:
                self._placement = placement
                self._idle.append(worker)
                return self
            failures.append(f"{placement}: no {', '.join(worker.isolation.missing)}")
            await worker.kill()
        raise SandboxUnavailable(
            f"programs cannot be isolated here ({'; '.join(failures)}). {placements.MEND}"
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every worker and what runs in it."""
        self._placement = None
        workers = [*self._idle, *self._taken]
        self._idle.clear()
        await asyncio.gather(*(worker.kill() for worker in workers))

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:  # noqa: B008 - frozen
        """Run one program; see `Sandbox.run`.

        Raises TypeError for bindings that are no JSON, RuntimeError outside of `async with`.
        """
        check(program, limits)
        loop = asyncio.get_running_loop()
        called = loop.time()
        async with self._turns:
            try:
                worker = await self._take(limits.disk_bytes)
            except WorkerFailed as error:
                return Execution(status=Status.SANDBOX_FAILED, detail=f"no worker could be started: {error}")
            queued = loop.time() - called
            try:
                return replace(await worker.run(program, limits), queued_seconds=queued)
            finally:
                self._taken.discard(worker)
                self._idle.append(worker)

    async def _take(self, disk_bytes: int) -> Worker:
        """A living worker whose scratch folder has the wanted size, started where there is none."""
        for worker in [worker for worker in self._idle if not worker.alive]:
            self._idle.remove(worker)
            await worker.kill()
        worker = next((idle for idle in reversed(self._idle) if idle.disk_bytes == disk_bytes), None)
        if worker is not None:
            self._idle.remove(worker)
        else:
            while self._idle:
                # Folders of another size: they make room, so that no more than `capacity` ever stand.
                await self._idle.pop(0).kill()
            worker = await self._start(disk_bytes)
        self._taken.add(worker)
        return worker

    async def _start(self, disk_bytes: int) -> Worker:
        if self._placement is None:
            raise RuntimeError(_CLOSED)
        worker = await Worker.start(self._placement, self._preload, disk_bytes)
        if self._placement is None:
            await worker.kill()
            raise RuntimeError(_CLOSED)
        return worker
