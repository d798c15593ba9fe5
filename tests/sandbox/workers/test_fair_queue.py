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


async def serve(queue: FairQueue, first: str, served: list[str], times: int) -> None:
    """Give the place back as often, for the client that was served last; `first` had it at the beginning."""
    for _ in range(times):
        queue.release([first, *served][-1])
        await asyncio.sleep(0)


async def test_clients_take_turns_and_each_keeps_its_order():
    queue = FairQueue(1)
    await queue.acquire("a")
    served, tasks = await in_line(queue, "aaaabbc")
    assert queue.waiting == 7
    await serve(queue, "a", served, 7)
    assert "".join(served) == "abcabaa"
    await asyncio.gather(*tasks)


async def test_names_after_a_slash_take_turns_within_the_turn_of_their_caller():
    queue = FairQueue(1)
    await queue.acquire("z")
    served, tasks = await in_line(queue, ["a/1", "a/1", "a/2", "a/3/x", "b", "a", "b"])
    tasks[2].cancel()
    await asyncio.sleep(0)
    assert queue.waiting == 6
    await serve(queue, "z", served, 6)
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
    await serve(queue, "a", served, 1)
    assert served == ["b"]
    await serve(queue, "a", served, 1)
    await queue.acquire("c")
    assert [task.cancelled() for task in tasks] == [True, True, False]


async def test_the_client_with_the_fewest_places_is_next():
    queue = FairQueue(2)
    _, held = await in_line(queue, ["a", "a"])
    served, tasks = await in_line(queue, ["a", "a", "b"])
    queue.release("a")
    await asyncio.sleep(0)
    assert served == ["b"]
    queue.release("a")
    queue.release("b")
    await asyncio.gather(*held, *tasks)


async def test_further_places_are_for_clients_that_hold_none():
    """A single client may have them too: there is nobody else for whom they could be kept."""
    queue = FairQueue(2)
    _, held = await in_line(queue, ["a/1", "a/2"])
    served, tasks = await in_line(queue, ["a/3", "a/4"])
    queue.extend(1)
    await asyncio.sleep(0)
    assert served == ["a/3"]
    queue.extend(0)
    queue.release("a/1")
    later, others = await in_line(queue, ["b"])
    queue.extend(1)
    await asyncio.sleep(0)
    assert (served, later) == (["a/3"], ["b"])
    queue.release("b")
    await asyncio.sleep(0)
    assert served == ["a/3"]
    await asyncio.wait_for(queue.acquire("c"), 1)
    queue.release("a/2")
    queue.release("c")
    await asyncio.gather(*held, *tasks, *others)
    assert served == ["a/3", "a/4"]


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
