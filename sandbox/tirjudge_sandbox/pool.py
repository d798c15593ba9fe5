"""Workers by the seat: so many programs at once, the rest in order, and a new worker for every lost one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tirjudge_sandbox.base import Execution, Limits, Program, Status
from tirjudge_sandbox.validation import check
from tirjudge_sandbox.worker import Worker, WorkerFailed

_CLOSED = "the sandbox is not open: use it inside `async with`"

Start = Callable[[int], Awaitable[Worker]]
"""Starts a worker with a working folder of so many bytes. Raises WorkerFailed."""


class Pool:
    """At most `capacity` workers. Closed until `open` is called."""

    def __init__(self, capacity: int | None):
        """`capacity`: from 1 up, None means one per usable CPU."""
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.capacity = capacity or len(os.sched_getaffinity(0))
        self._start: Start | None = None
        self._seats = [_Seat() for _ in range(self.capacity)]
        self._free = list(self._seats)
        self._turns = asyncio.Semaphore(self.capacity)

    def open(self, start: Start, first: Worker) -> None:
        """Take programs from now on, with `first` for the first of them and `start` for more workers."""
        self._start = start
        self._seats[0].worker = first

    async def close(self) -> None:
        """End every worker and what runs in it."""
        self._start = None
        await asyncio.gather(*(seat.clear() for seat in self._seats))

    async def run(self, program: Program, limits: Limits) -> Execution:
        """Run one program; see `Sandbox.run`.

        Raises TypeError for bindings that are no JSON, RuntimeError when closed.
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
        if self._start is None:
            raise RuntimeError(_CLOSED)
        if seat.worker is not None and seat.fitness(disk_bytes) == _FITS:
            return seat.worker
        await seat.clear()
        worker = await self._start(disk_bytes)
        if self._start is None:
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
