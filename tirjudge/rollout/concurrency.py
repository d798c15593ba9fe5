"""An event loop in a thread of its own: asynchronous work for callers with another loop, or with none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines until closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine; whatever interrupts the wait cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop; a second call does nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def as_finished(works: Iterable[Coroutine[Any, Any, T]], at_once: int) -> AsyncGenerator[T]:
    """The results, each as it is there; works are taken one by one as room is made.

    The first error is raised as it is; that, and closing the generator, cancels what is running.
    """
    waiting = iter(works)
    running: set[asyncio.Task[T]] = set()
    try:
        while True:
            running |= {asyncio.create_task(work) for work in islice(waiting, at_once - len(running))}
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for finished in done:
                yield finished.result()
    finally:
        for unfinished in running:
            unfinished.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def all_or_none(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order; the first error cancels the rest and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]
