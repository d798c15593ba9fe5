"""Work in one queue, from which all processes of a run take pieces until none is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import uuid4

from tirjudge_training.distributed.processes import ALONE, Processes

T = TypeVar("T")


class SharedQueue:
    """The numbers from 0 to `size` - 1; one process takes each number.

    The next number is a counter in the store of torch.distributed, which answers at once, whatever other
    processes do. Each of several `processes` must create the queue at the same point of the program.
    """

    def __init__(self, size: int, processes: Processes = ALONE) -> None:
        self._size, self._taken = size, 0
        # A unique name, which no earlier queue has used.
        self._name = processes.first(lambda: uuid4().hex)
        self._store = _store() if processes.world > 1 else None

    def take(self) -> int | None:
        """Return the next number, or None if all are taken."""
        if self._store is not None:
            self._taken = int(self._store.add(f"tirjudge/{self._name}/taken", 1))
        else:
            self._taken += 1
        return self._taken - 1 if self._taken <= self._size else None


@dataclass(frozen=True, slots=True)
class Round(Generic[T]):
    """The results of a round of work, the same in every process."""

    results: dict[int, T]
    """The results by the number of the piece of work, in rising order."""
    seconds: float
    """Wall seconds of the round."""
    waited: float
    """Mean seconds from the end of a started piece to the end of the round."""
    idle: float
    """Mean seconds of a process between the end of its last piece and the end of the round."""


async def take_turns(
    pieces: int,
    work: Callable[[int, Callable[[], None]], Coroutine[Any, Any, T]],
    *,
    parts: int = 1,
    at_once: int | None = None,
    processes: Processes = ALONE,
) -> Round[T]:
    """Do numbered pieces of work in all processes together, and return the results of all.

    `work` gets a number, and a function to call at the end of each of `parts` parts. A process takes the next
    piece from the queue while fewer than `at_once` of its parts and fewer than an equal share of all pieces
    run, so no process is left without work. The first error cancels the rest and is raised.
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

    exhausted = False
    try:
        while True:
            while not exhausted and len(running) < share and (at_once is None or left < at_once):
                number = queue.take()
                if number is None:
                    exhausted = True
                else:
                    left += parts
                    task = asyncio.create_task(work(number, part_done))
                    # Apart from `part_done`: a piece ends after its parts, when scored, or by an error.
                    task.add_done_callback(lambda _: stirred.set())
                    running[task] = number
            if not running:
                break
            await stirred.wait()
            stirred.clear()
            for task in [task for task in running if task.done()]:
                number = running.pop(task)
                results[number] = task.result()
                ends.append(clock() - began)
    finally:
        for task in running:
            task.cancel()
        # Cancelled pieces still clean up, with resources that the caller closes afterwards.
        await asyncio.gather(*running, return_exceptions=True)
    own = clock() - began
    every = processes.every(_Share(results, ends, own))
    seconds = max(share.seconds for share in every)
    finished = [end for one in every for end in one.ends]
    together = {number: result for one in every for number, result in one.results.items()}
    return Round(
        {number: together[number] for number in sorted(together)},
        seconds=seconds,
        waited=sum(seconds - end for end in finished) / max(1, len(finished)),
        idle=sum(seconds - one.busy for one in every) / len(every),
    )


@dataclass(frozen=True, slots=True)
class _Share(Generic[T]):
    """The part of one process in a round."""

    results: dict[int, T]
    ends: list[float]
    """Seconds from the start of the round to the end of each piece."""
    seconds: float

    @property
    def busy(self) -> float:
        """Seconds until its last piece was done."""
        return max(self.ends, default=0.0)


@cache
def _store() -> Any:
    """Return this process's connection to the store of the default process group."""
    from torch.distributed import distributed_c10d

    # torch's type stubs lack `clone`.
    store: Any = distributed_c10d._get_default_store()
    # A separate connection: the trainer may be waiting in the group's connection, in another thread.
    return store.clone()
