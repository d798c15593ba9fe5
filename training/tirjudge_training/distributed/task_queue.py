"""Work that the processes of a run take from one queue, until all or enough of it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import uuid4

from tirjudge_training.distributed.processes import ALONE, Processes

T = TypeVar("T")

POLL = 0.05
"""Seconds between two looks at what the other processes have done."""


class SharedQueue:
    """The numbers from 0 to `size` - 1, each of which one process takes, and a total that all add to.

    Both are counters in the store of torch.distributed, which answers at once, whatever the other processes
    are doing. Each of several `processes` must create the queue at the same point of the program.
    """

    def __init__(self, size: int, processes: Processes = ALONE) -> None:
        self._size = size
        self._counts = {"taken": 0, "total": 0}
        # A name of its own, which no queue before it has used.
        self._name = processes.first(lambda: uuid4().hex)
        self._store = _store() if processes.world > 1 else None

    def take(self) -> int | None:
        """Return the next number, or None if all are taken."""
        number = self._add("taken", 1) - 1
        return number if number < self._size else None

    def add(self, amount: int) -> int:
        """Add to the total of all processes and return it."""
        return self._add("total", amount)

    def _add(self, counter: str, amount: int) -> int:
        if self._store is not None:
            return int(self._store.add(f"tirjudge/{self._name}/{counter}", amount))
        self._counts[counter] += amount
        return self._counts[counter]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """The results of a round of work, the same in every process."""

    results: dict[int, T]
    """The results by the number of the piece of work, in rising order; pieces that were cut are missing."""
    cut: tuple[int, ...]
    """The pieces that were started and then cancelled."""
    seconds: float
    """Wall seconds of the round."""
    waited: float
    """Mean seconds for which a started piece that was done waited for the end of the round."""
    idle: float
    """Mean seconds of a process between the end of its last piece and the end of the round."""


async def take_turns(
    pieces: int,
    work: Callable[[int, Callable[[], None]], Coroutine[Any, Any, T]],
    *,
    parts: int = 1,
    at_once: int | None = None,
    worth: Callable[[T], int] = lambda result: 1,
    wanted: int | None = None,
    processes: Processes = ALONE,
    progress: Callable[[int], None] = lambda done: None,
) -> Outcome[T]:
    """Do numbered pieces of work in all processes together, and return the results of all.

    `work` is called with a number and with a function that it calls at the end of each of its `parts`. A
    process takes the next piece from the queue while fewer than `at_once` parts run in it, and at first no
    more pieces than an equal share, so that none is left without work. As soon as the results together are
    `worth` as much as is `wanted`, everything that still runs is cancelled; None waits for all. The first
    error cancels the rest and is raised. `progress` gets the number of pieces that this process has done.
    """
    queue = SharedQueue(pieces, processes)
    share = -(-pieces // processes.world)
    clock = asyncio.get_running_loop().time
    began = clock()
    running: dict[asyncio.Task[T], int] = {}
    results: dict[int, T] = {}
    ends: list[float] = []
    stirred = asyncio.Event()
    left = 0  # parts that run

    def part_done() -> None:
        nonlocal left
        left -= 1
        stirred.set()

    def piece_done(task: asyncio.Task[T]) -> None:
        stirred.set()

    exhausted = enough = False
    try:
        while not enough:
            while not exhausted and len(running) < share and (at_once is None or left < at_once):
                number = queue.take()
                if number is None:
                    exhausted = True
                else:
                    left += parts
                    task = asyncio.create_task(work(number, part_done))
                    task.add_done_callback(piece_done)
                    running[task] = number
            if not running:
                break
            # Only a total that other processes add to can change without anything happening here.
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL if wanted is not None and processes.world > 1 else None):
                    await stirred.wait()
            stirred.clear()
            gained = 0
            for task in [task for task in running if task.done()]:
                number = running.pop(task)
                results[number] = task.result()
                ends.append(clock() - began)
                gained += worth(results[number])
                progress(len(results))
            enough = wanted is not None and queue.add(gained) >= wanted
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    own = clock() - began
    every = processes.every(_Share(results, sorted(running.values()), ends, own))
    seconds = max(share.seconds for share in every)
    finished = [end for one in every for end in one.ends]
    cut = sorted(number for one in every for number in one.cut)
    together = {number: result for one in every for number, result in one.results.items()}
    return Outcome(
        {number: together[number] for number in sorted(together)},
        cut=tuple(cut),
        seconds=seconds,
        waited=sum(seconds - end for end in finished) / max(1, len(finished) + len(cut)),
        idle=sum(seconds - one.busy for one in every) / len(every),
    )


@dataclass(frozen=True, slots=True)
class _Share(Generic[T]):
    """The part of one process in a round."""

    results: dict[int, T]
    cut: list[int]
    ends: list[float]
    """Seconds from the start of the round to the end of each piece."""
    seconds: float

    @property
    def busy(self) -> float:
        """Seconds until its last piece was done or cut."""
        return self.seconds if self.cut else max(self.ends, default=0.0)


@cache
def _store() -> Any:
    """Return a connection of this process to the store of its default process group."""
    from torch.distributed import distributed_c10d

    # torch's type stubs lack `clone`.
    store: Any = distributed_c10d._get_default_store()
    # One of its own: the trainer may be waiting in the group's connection, in another thread.
    return store.clone()
