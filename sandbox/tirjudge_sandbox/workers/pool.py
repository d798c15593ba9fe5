"""A pool of workers: bounded concurrency, fair queueing between clients, and replacement of lost workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tirjudge_sandbox.base import Execution, Limits, Program, Status, validate
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.guest.settings import Preparation
from tirjudge_sandbox.import_policy import ImportPolicy
from tirjudge_sandbox.prepared import Prepared
from tirjudge_sandbox.workers.fair_queue import Backoff, FairQueue
from tirjudge_sandbox.workers.worker import Channel, Worker, WorkerFailed

PROGRAMS_PER_WORKER = 10_000
"""A worker is replaced after this many programs, so that small leaks cannot add up."""

LONG_SECONDS = 0.15
"""A program that has run for this long no longer makes short ones wait; see `Pool`."""

_CLOSED = "the sandbox is not open: use it inside `async with`"

Start = Callable[[WorkingFolder], Awaitable[Worker]]
"""Starts a worker with this working folder. Raises WorkerFailed."""

_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """The state of a pool, and counters since it was created."""

    capacity: int
    running: int
    """At most `capacity`, and `spare` more while programs are long."""
    queued: int
    workers: int
    """Workers alive."""
    programs: int
    """Programs that have ended, in whatever way."""
    started: int
    """Workers started."""
    recycled: int
    """Workers that ended as planned."""
    lost: int
    """Workers that ended unexpectedly."""
    refused: int
    """Workers that did not start."""
    failing: int
    """Workers lost or refused in a row, simultaneous ones counted once. 0 when healthy."""


class Pool:
    """Up to `capacity` workers that run programs. The pool is closed until `open` is called.

    A short program need not wait for the end of long ones: while `capacity` programs have been running for
    `LONG_SECONDS` each, one more may run, and up to `spare` if those get long too. The kernel then divides
    the CPUs fairly, since each program is a session (and so an autogroup of the scheduler) of its own. The
    worker for it is started beforehand, since a running program may end before a new worker is warm.
    """

    def __init__(
        self, capacity: int | None, *, programs_per_worker: int = PROGRAMS_PER_WORKER, spare: int = 0
    ):
        """`capacity`: at least 1; None means one per usable CPU. `programs_per_worker`: at least 1. `spare`:
        at least 0.
        """
        for name, value in (("capacity", capacity), ("programs_per_worker", programs_per_worker)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        if spare < 0:
            raise ValueError(f"spare must be at least 0, not {spare}")
        self.capacity = capacity or len(os.sched_getaffinity(0))
        self.least = WorkingFolder()
        """The least working folder; programs with lower limits share workers."""
        self.taken = WorkingFolder()
        """Room that every working folder has in addition, for files that the prepared program has mapped."""
        self._most_programs = programs_per_worker
        self._start: Start | None = None
        self._spare = spare
        self._long = 0
        self._seats = [_Seat(spare=number >= self.capacity) for number in range(self.capacity + spare)]
        self._free = list(self._seats)
        self._queue = FairQueue(self.capacity)
        self._backoff = Backoff()
        self._programs = self._started = self._recycled = self._lost = self._refused = 0

    @property
    def first_folder(self) -> WorkingFolder:
        """The working folder of the worker that is started before any program is known."""
        return WorkingFolder.of(_DEFAULT_LIMITS, self.least, self.taken)

    def open(self, start: Start, first: Worker) -> None:
        """Accept programs from now on; `first` is a warm worker, and `start` makes further ones."""
        self._start = start
        self._seats[0].worker = first
        self._started += 1

    async def close(self) -> None:
        """Kill every worker and the programs that run in them."""
        self._start = None
        # Only after `_start` is gone, so that waiting programs start no new worker.
        await asyncio.gather(*(seat.clear() for seat in self._seats))

    def stats(self) -> PoolStats:
        """Return the current state and counters."""
        return PoolStats(
            capacity=self.capacity,
            running=len(self._seats) - len(self._free),
            queued=self._queue.waiting,
            workers=sum(seat.alive for seat in self._seats),
            programs=self._programs,
            started=self._started,
            recycled=self._recycled,
            lost=self._lost,
            refused=self._refused,
            failing=self._backoff.failures,
        )

    async def run(self, program: Program, limits: Limits, channel: Channel | None = None) -> Execution:
        """Run one program; see `Sandbox.run`, and `Worker.run` for `channel`.

        Raises TypeError for bindings that are not JSON, RuntimeError when closed.
        """
        validate(program, limits)
        called = asyncio.get_running_loop().time()
        # Once this program waits, if it has to.
        asyncio.get_running_loop().call_soon(self._lend)
        await self._queue.acquire(program.client)
        folder = WorkingFolder.of(limits, self.least, self.taken)
        # Among equally suitable seats, prefer the most recently used one.
        seat = max(reversed(self._free), key=lambda seat: self._fitness(seat, folder))
        self._free.remove(seat)
        try:
            worker = await self._occupied(seat, folder, limits)
            queued = asyncio.get_running_loop().time() - called
            with self._timed():
                execution = await self._run_in(worker, program, limits, channel)
            return replace(execution, queued_seconds=queued)
        except (WorkerFailed, OSError) as error:
            return Execution(status=Status.SANDBOX_FAILED, detail=f"no worker could be started: {error}")
        finally:
            self._free.append(seat)
            self._queue.release(program.client)
            self._lend()

    async def _run_in(
        self, worker: Worker, program: Program, limits: Limits, channel: Channel | None
    ) -> Execution:
        try:
            return await worker.run(program, limits, channel)
        finally:
            self._programs += 1
            if not worker.broken:
                self._backoff.succeeded()
            # Closing the pool breaks workers too, which is no loss.
            elif self._start is not None:
                self._lose()

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Count a program among the long ones from when it has run for `LONG_SECONDS` to its end."""
        long = False

        def count() -> None:
            nonlocal long
            long = True
            self._long += 1
            self._lend()

        timer = asyncio.get_running_loop().call_later(LONG_SECONDS, count)
        try:
            yield
        finally:
            timer.cancel()
            self._long -= long

    def _lend(self) -> None:
        """Let as many programs run in addition to `capacity` as there are long ones and warm workers for."""
        extra = min(self._spare, max(0, self._long - self.capacity + 1))
        lent = max(0, len(self._seats) - len(self._free) - self.capacity)
        warm = sum(seat.alive for seat in self._free)
        if lent < extra and not warm and self._queue.waiting and self._start is not None:
            cold = self._free[-1]
            if cold.warming is None:
                cold.warming = asyncio.ensure_future(self._warm(cold))
        self._queue.extend(min(extra, lent + warm))

    async def _warm(self, seat: _Seat) -> None:
        """Start the worker of a free seat, which a program may take meanwhile."""
        # A program that needs the worker finds out itself why there is none.
        with contextlib.suppress(WorkerFailed, OSError, RuntimeError):
            await self._backoff.wait()
            seat.worker = await self._started_worker(self.first_folder)
        seat.warming = None
        self._lend()

    async def _occupied(self, seat: _Seat, folder: WorkingFolder, limits: Limits) -> Worker:
        """Return the seat's worker, or a new one if it has none, a lost, a worn-out or a wrong-sized one."""
        if seat.warming is not None:
            await asyncio.wait([seat.warming])
        if self._start is None:
            raise RuntimeError(_CLOSED)
        worker = seat.worker
        if worker is not None and self._fitness(seat, folder) == _FITS and worker.limit(limits):
            return worker
        await self._vacate(seat)
        await self._backoff.wait()
        worker = seat.worker = await self._started_worker(folder)
        if not worker.limit(limits):
            raise WorkerFailed("the memory of its control group cannot be limited")
        return worker

    def _fitness(self, seat: _Seat, folder: WorkingFolder) -> int:
        if seat.worker is None or not seat.alive or seat.worker.programs >= self._most_programs:
            return _SPARE if seat.spare else _EMPTY
        if seat.worker.folder == folder:
            return _FITS
        return _SPARE if seat.spare else _OTHER_SIZE

    async def _vacate(self, seat: _Seat) -> None:
        if seat.alive:
            self._recycled += 1
        # A broken worker was already counted as lost when its program ended.
        elif seat.worker is not None and not seat.worker.broken:
            self._lose()
        await seat.clear()

    def _lose(self) -> None:
        self._lost += 1
        self._backoff.failed()

    async def _started_worker(self, folder: WorkingFolder) -> Worker:
        if self._start is None:
            raise RuntimeError(_CLOSED)
        try:
            worker = await self._start(folder)
        except (WorkerFailed, OSError):
            self._refused += 1
            self._backoff.failed()
            raise
        self._started += 1
        # The pool may have been closed while the worker started.
        if self._start is None:
            await worker.kill()
            raise RuntimeError(_CLOSED)
        return worker


_FITS, _EMPTY, _OTHER_SIZE, _SPARE = 3, 2, 1, 0
"""Ranks of free seats. An empty one is better than one of another size, whose warm worker would be lost. A
spare one, unless it fits, is taken only if there is no other."""


class _Seat:
    """A place for one worker."""

    def __init__(self, *, spare: bool) -> None:
        """`spare`: it is beyond the capacity."""
        self.spare = spare
        self.worker: Worker | None = None
        self.warming: asyncio.Task[None] | None = None
        """Starts the worker while no program has the seat."""

    @property
    def alive(self) -> bool:
        return self.worker is not None and self.worker.alive

    async def clear(self) -> None:
        if self.warming is not None:
            self.warming.cancel()
            await asyncio.wait([self.warming])
            self.warming = None
        if self.worker is not None:
            await self.worker.kill()
            self.worker = None


class PooledSandbox:
    """The common part of backends with warm workers: a subclass opens and closes `_pool`.

    Its workers must have been started with `_preparation` and `_prepared`.
    """

    def __init__(
        self,
        *,
        capacity: int | None,
        preload: Sequence[str],
        programs_per_worker: int,
        spare: int,
        unix_sockets: bool,
        import_policy: ImportPolicy | None,
        prepared: Prepared | None,
    ):
        self._pool = Pool(capacity, programs_per_worker=programs_per_worker, spare=spare)
        self.capacity = self._pool.capacity
        self._prepared = prepared
        if prepared is not None:
            self._pool.taken = prepared.folder
        self._preparation = Preparation(
            preload=tuple(preload),
            unix_sockets=unix_sockets,
            imports=None if import_policy is None else tuple(sorted(import_policy.imports)),
            prepared_bytes=0 if prepared is None else prepared.memory_bytes,
        )

    async def run(
        self, program: Program, limits: Limits = _DEFAULT_LIMITS, *, channel: Channel | None = None
    ) -> Execution:
        """Run one program; see `Sandbox.run`.

        `channel`: see `Worker.run`. Raises TypeError for bindings that are not JSON, RuntimeError outside of
        `async with`.
        """
        return await self._pool.run(program, limits, channel)

    def share_folders(self, most: Limits) -> None:
        """Give every working folder at least what a program with the limits `most` needs.

        Must be called before the sandbox is opened. Programs with other limits of the folder, up to those,
        then share workers, which are otherwise replaced for every other size. `disk_bytes` still bounds each
        file of a program, but no longer their sum.
        """
        self._pool.least = WorkingFolder.of(most, self._pool.least)

    def stats(self) -> PoolStats:
        """Return the state and counters of the pool."""
        return self._pool.stats()
