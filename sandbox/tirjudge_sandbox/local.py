"""The default backend: warm workers on this machine, each in namespaces of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from tirjudge_sandbox import placements
from tirjudge_sandbox.base import Execution, Limits, Program, SandboxUnavailable, Status
from tirjudge_sandbox.validation import check
from tirjudge_sandbox.worker import Worker, WorkerFailed

_DEFAULT_LIMITS = Limits()
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
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"the local sandbox needs Linux, this is {sys.platform}: use another backend"
            )
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity or len(os.sched_getaffinity(0))
        self._preload = tuple(preload)
        self._allow_weak = allow_weak_isolation
        self._placement: str | None = None
        self._seats = [_Seat() for _ in range(self.capacity)]
        self._free = list(self._seats)
        self._turns = asyncio.Semaphore(self.capacity)

    async def __aenter__(self) -> Self:
        """Start the first worker. Raises SandboxUnavailable where the machine cannot give a property."""
        failures = []
        for placement in placements.candidates(allow_weak=self._allow_weak):
            try:
                worker = await Worker.start(placement, self._preload, _DEFAULT_LIMITS.disk_bytes)
            except WorkerFailed as error:
                failures.append(f"{placement}: {error}")
                continue
            if not worker.isolation.missing or self._allow_weak:
                self._placement = placement
                self._seats[0].worker = worker
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
        await asyncio.gather(*(seat.clear() for seat in self._seats))

    async def run(self, program: Program, limits: Limits = _DEFAULT_LIMITS) -> Execution:
        """Run one program; see `Sandbox.run`.

        Raises TypeError for bindings that are no JSON, RuntimeError outside of `async with`.
        """
        check(program, limits)
        loop = asyncio.get_running_loop()
        called = loop.time()
        async with self._turns:
            seat = max(reversed(self._free), key=lambda seat: seat.fitness(limits.disk_bytes))
            self._free.remove(seat)
            try:
                worker = await self._occupied(seat, limits.disk_bytes)
                queued = loop.time() - called
                return replace(await worker.run(program, limits), queued_seconds=queued)
            except (WorkerFailed, OSError) as error:
                return Execution(status=Status.SANDBOX_FAILED, detail=f"no worker could be started: {error}")
            finally:
                self._free.append(seat)

    async def _occupied(self, seat: _Seat, disk_bytes: int) -> Worker:
        """The seat's worker; a new one where it has none, a lost one, or one with another size of folder."""
        if self._placement is None:
            raise RuntimeError(_CLOSED)
        if seat.worker is not None and seat.fitness(disk_bytes) == _FITS:
            return seat.worker
        await seat.clear()
        worker = await Worker.start(self._placement, self._preload, disk_bytes)
        if self._placement is None:
            await worker.kill()
            raise RuntimeError(_CLOSED)
        seat.worker = worker
        return worker


_FITS, _EMPTY, _OTHER_SIZE = 2, 1, 0


class _Seat:
    """A place for one worker."""

    def __init__(self) -> None:
        self.worker: Worker | None = None

    def fitness(self, disk_bytes: int) -> int:
        if self.worker is None or not self.worker.alive:
            return _EMPTY
        return _FITS if self.worker.disk_bytes == disk_bytes else _OTHER_SIZE

    async def clear(self) -> None:
        if self.worker is not None:
            await self.worker.kill()
            self.worker = None
