"""Bounded concurrency: coroutines as they finish, and rows read in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tirjudge_sandbox.blocking import Work

T = TypeVar("T")

_READ_AHEAD = 64


async def as_finished(
    works: Iterable[Work[T]] | AsyncGenerator[Work[T]], concurrency: int
) -> AsyncGenerator[T]:
    """Run at most `concurrency` coroutines at once and yield their results as they finish.

    The coroutines are taken from `works` one by one, as room is made. The first error is raised unchanged. An
    error, or closing the generator, cancels running coroutines.
    """
    source = works if isinstance(works, AsyncGenerator) else _each(works)
    running: set[asyncio.Task[T]] = set()
    arriving: asyncio.Task[Work[T] | None] | None = None
    exhausted = False
    try:
        while True:
            if arriving is None and not exhausted and len(running) < concurrency:
                # A task, so that results are yielded while a slow source is waited for.
                arriving = asyncio.create_task(_next(source))
            waiting: set[asyncio.Task[Any]] = {*running, *([arriving] if arriving else [])}
            if not waiting:
                return
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if arriving in done:
                work = arriving.result()
                arriving = None
                if work is None:
                    exhausted = True
                else:
                    running.add(asyncio.create_task(work))
            for finished in done & running:
                running.discard(finished)
                yield finished.result()
    finally:
        unfinished = [*running, *([arriving] if arriving else [])]
        for task in unfinished:
            task.cancel()
        left = await asyncio.gather(*unfinished, return_exceptions=True)
        # Python warns of a coroutine that was never awaited unless it is closed.
        if arriving is not None and isinstance(left[-1], Coroutine):
            left[-1].close()
        await source.aclose()


async def _each(works: Iterable[T]) -> AsyncGenerator[T]:
    for work in works:
        yield work


async def _next(source: AsyncIterator[T]) -> T | None:
    """Return the next item; None at the end. A task cannot carry StopAsyncIteration."""
    return await anext(source, None)


async def all_or_none(works: Iterable[Work[T]]) -> list[T]:
    """Run all coroutines at once and return their results in order.

    The first error cancels the rest and is raised as it is.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as several:
        # Callers handle single exceptions, such as GeneratorFailed.
        raise several.exceptions[0] from None
    return [task.result() for task in tasks]


@dataclass(frozen=True, slots=True)
class _End:
    error: Exception | None


async def read_in_thread(rows: Iterable[T]) -> AsyncGenerator[T]:
    """Yield the items of an iterable that blocks, such as a slow pipe, without blocking the event loop.

    A thread of its own reads up to 64 items ahead. An error of the iterable is raised after the items that
    came before it.
    """
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[T | _End] = asyncio.Queue()
    room = threading.Semaphore(_READ_AHEAD)
    stopped = threading.Event()

    def put(item: T | _End) -> None:
        # The loop may be closed by now: then nothing waits for rows any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(arrived.put_nowait, item)

    def read() -> None:
        try:
            for row in rows:
                room.acquire()
                if stopped.is_set():
                    return
                put(row)
        except Exception as error:
            put(_End(error))
        else:
            put(_End(None))

    # A daemon: a read that blocks forever must not keep the process alive.
    threading.Thread(target=read, name="tirjudge-rows", daemon=True).start()
    try:
        while not isinstance(item := await arrived.get(), _End):
            room.release()
            yield item
        if item.error is not None:
            raise item.error
    finally:
        # The release wakes a reader that waits for room, to see the stop.
        stopped.set()
        room.release()


@asynccontextmanager
async def each_second(call: Callable[[], None]) -> AsyncGenerator[None]:
    """Make a call every second, so that a line comes before the first piece of long work is done."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            call()

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
