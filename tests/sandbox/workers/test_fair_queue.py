"""The fair queue: clients take turns whatever the length of their queues, and no turn is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import pytest

from tirjudge_sandbox.workers.fair_queue import Backoff, FairQueue


async def in_line(queue: FairQueue, clients: Iterable[str]) -> tuple[list[str], list[asyncio.Task[None]]]:
    """Start a waiting task per client, in this order; return the names served so far and the tasks."""
    served: list[str] = []

    async def one(client: str) -> None:
        await queue.acquire(client)
        served.append(client)

    tasks = [asyncio.create_task(one(client)) for client in clients]
    await asyncio.sleep(0)
    return served, tasks


async def serve(queue: FairQueue, times: int) -> None:
    for _ in range(times):
        queue.release()
        await asyncio.sleep(0)


async def test_clients_take_turns_and_each_keeps_its_order():
    queue = FairQueue(1)
    await queue.acquire("a")
    served, tasks = await in_line(queue, "aaaabbc")
    assert queue.waiting == 7
    await serve(queue, 7)
    assert "".join(served) == "abcabaa"
    await asyncio.gather(*tasks)


async def test_names_after_a_slash_take_turns_within_the_turn_of_their_caller():
    queue = FairQueue(1)
    await queue.acquire("z")
    served, tasks = await in_line(queue, ["a/1", "a/1", "a/2", "a/3/x", "b", "a", "b"])
    tasks[2].cancel()
    await asyncio.sleep(0)
    assert queue.waiting == 6
    await serve(queue, 6)
    assert served == ["a/1", "b", "a/3/x", "b", "a", "a/1"]
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_cancelled_client_is_skipped():
    queue = FairQueue(1)
    await queue.acquire("a")
    served, tasks = await in_line(queue, "abb")
    tasks[0].cancel()
    await asyncio.sleep(0)
    assert queue.waiting == 2
    # This task is cancelled too late to notice before it gets the turn.
    tasks[1].cancel()
    await serve(queue, 1)
    assert served == ["b"]
    await serve(queue, 1)
    await queue.acquire("c")
    assert [task.cancelled() for task in tasks] == [True, True, False]


@pytest.fixture
def slept(monkeypatch):
    """Replace the clock by one that only sleeping moves, and return the list of seconds slept."""
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(round(seconds, 6))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: sum(naps))
    return naps


async def test_each_failure_doubles_the_wait_up_to_ten_seconds(slept):
    pause = Backoff()
    for _ in range(9):
        pause.failed()
        await pause.wait()
    assert slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    assert pause.failures == 9
