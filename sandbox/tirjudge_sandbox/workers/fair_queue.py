"""A fair queue for a limited number of places: clients take turns, and each client is served in order."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque


class FairQueue:
    """A semaphore with `count` places. A client with thousands of waiters delays another by one, not by all.

    Belongs to one event loop; not thread-safe.
    """

    def __init__(self, count: int):
        self._free = count
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Waiters per client. The order of the keys is the order in which clients are served."""

    @property
    def waiting(self) -> int:
        """Number of waiters of all clients."""
        return sum(map(len, self._waiting.values()))

    async def acquire(self, client: str) -> None:
        """Wait for a place. It must be given back by `release`; a cancelled call holds none."""
        if self._free:
            self._free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._leave(client, place)
            else:
                # The place was assigned in the same iteration of the loop, and would be lost.
                self.release()
            raise

    def release(self) -> None:
        """Give a place back: the first waiter of the next client gets it."""
        while self._waiting:
            client, waiters = self._waiting.popitem(last=False)
            place = waiters.popleft()
            if waiters:
                # The client goes to the end of the order, behind all others that wait.
                self._waiting[client] = waiters
            # A waiter whose task was cancelled may not have run yet to leave the queue.
            if not place.done():
                place.set_result(None)
                return
        self._free += 1

    def _leave(self, client: str, place: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(client, deque())
        if place in waiters:
            waiters.remove(place)
            if not waiters:
                del self._waiting[client]
