"""Waiting for workers: a fair queue in which clients take turns, and exponential backoff after failures."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque

_CALM_SECONDS = 0.005
"""Seconds of one round of the event loop up to which it counts as calm."""
_CALM_PROBES, _MOST_PROBES = 4, 40
_FIRST_SECONDS, _LONGEST_SECONDS = 0.1, 10.0
_MOST_DOUBLINGS = 10
"""Bounds the exponent: 0.1 s doubled ten times is far beyond the longest wait."""


class FairQueue:
    """A semaphore with `count` places. A client with thousands of waiters delays another by one, not by all.

    The next place is for the client that holds the fewest, and clients that hold as many take turns.

    Clients whose names have the same part before a slash are one client towards all others, and take turns
    among themselves: a server puts its caller there, who may choose the rest of the name. Belongs to one
    event loop; not thread-safe.
    """

    def __init__(self, count: int):
        self._count = count
        self._extra = 0
        self._held: Counter[str] = Counter()
        """Places held per part before the slash."""
        self._first = ""
        self._several = False
        """True once clients with different parts before the slash have come."""
        self._waiting: OrderedDict[str, OrderedDict[str, deque[asyncio.Future[None]]]] = OrderedDict()
        """Waiters per part before the slash and client. The order of keys is the order in which they are
        served."""

    @property
    def waiting(self) -> int:
        """Number of waiters of all clients."""
        return sum(len(waiters) for clients in self._waiting.values() for waiters in clients.values())

    async def acquire(self, client: str) -> None:
        """Wait for a place. It must be given back by `release`; a cancelled call holds none."""
        group = client.partition("/")[0]
        self._first = self._first or group
        self._several = self._several or group not in ("", self._first)
        if self._may_hold(group):
            self._held[group] += 1
            return
        place = asyncio.get_running_loop().create_future()
        clients = self._waiting.setdefault(group, OrderedDict())
        clients.setdefault(client, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._leave(client, place)
            else:
                # The place was assigned in the same iteration of the loop, and would be lost.
                self.release(client)
            raise

    def release(self, client: str) -> None:
        """Give a place back: the first waiter of the next client gets it."""
        group = client.partition("/")[0]
        self._held[group] -= 1
        if not self._held[group]:
            del self._held[group]
        self._serve()

    def held(self, client: str) -> int:
        """Return the number of places that clients with the same part before the slash hold."""
        return self._held[client.partition("/")[0]]

    def extend(self, extra: int) -> None:
        """Allow so many places in addition to `count`.

        If several clients have come, only a client that holds no place gets an additional one: a client whose
        programs take long cannot take these too.
        """
        self._extra = extra
        self._serve()

    def _may_hold(self, group: str) -> bool:
        held = self._held.total()
        extra = 0 if self._several and group in self._held else self._extra
        return held < self._count + extra

    def _serve(self) -> None:
        """Give the places that are free to the next of the clients that hold the fewest."""
        while able := list(filter(self._may_hold, self._waiting)):
            group = min(able, key=self._held.__getitem__)
            clients = self._waiting.pop(group)
            client, waiters = clients.popitem(last=False)
            place = waiters.popleft()
            # Both go to the end of their order, behind all others that wait.
            if waiters:
                clients[client] = waiters
            if clients:
                self._waiting[group] = clients
            # A waiter whose task was cancelled may not have run yet to leave the queue.
            if not place.done():
                place.set_result(None)
                self._held[group] += 1

    def _leave(self, client: str, place: asyncio.Future[None]) -> None:
        group = client.partition("/")[0]
        clients = self._waiting.get(group, OrderedDict())
        waiters = clients.get(client, deque())
        if place in waiters:
            waiters.remove(place)
            if not waiters:
                del clients[client]
            if not clients:
                del self._waiting[group]


class Pace:
    """Starts pieces of work of an event loop one after another, each once the loop has rested from the last.

    Work that computes for long without waiting holds up everything else; after it the loop serves others
    for twice as long. Clients take turns.
    """

    def __init__(self) -> None:
        self._last: str | None = None
        """The client whose work started last, until the loop has rested from it."""
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._resting: set[asyncio.Task[None]] = set()

    async def start(self, client: str, least: float = 0.0) -> None:
        """Wait until the next piece of work may start, which the caller then starts at once.

        The one after it starts `least` seconds later, or later still.
        """
        if self._last is not None:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(client, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():
                    # The turn was given in the same iteration of the loop, and would be lost.
                    self._next()
                raise
        self._last = client
        rest = asyncio.ensure_future(self._rest(least))
        self._resting.add(rest)
        rest.add_done_callback(self._resting.discard)

    async def _rest(self, least: float) -> None:
        try:
            await asyncio.sleep(least)
            calm = 0
            for _ in range(_MOST_PROBES):
                began = time.monotonic()
                # Everything that is ready runs once.
                await asyncio.sleep(0)
                took = time.monotonic() - began
                calm = 0 if took > _CALM_SECONDS else calm + 1
                if calm == _CALM_PROBES:
                    break
                await asyncio.sleep(2 * took if took > _CALM_SECONDS else 0)
        finally:
            self._next()

    def _next(self) -> None:
        """Give the turn to the next client, if possible to another one than the last."""
        while self._waiting:
            client = next((one for one in self._waiting if one != self._last), None) or next(
                iter(self._waiting)
            )
            turns = self._waiting.pop(client)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():
                self._last = client
                turn.set_result(None)
                return
        self._last = None


class Backoff:
    """Doubles the wait after each failure, from 0.1 s up to 10 s, and resets it after a success.

    Shared by everything that retries the same thing, so that simultaneous failures count once.
    """

    def __init__(self) -> None:
        self.failures = 0
        """Failures in a row; failures during one wait count once."""
        self._until = 0.0
        """Monotonic time at which the next attempt is due."""

    def failed(self) -> None:
        """Record a failure and lengthen the wait.

        A failure during a wait is ignored: it has the cause that is being waited for.
        """
        now = time.monotonic()
        if now >= self._until:
            doublings = min(self.failures, _MOST_DOUBLINGS)
            self._until = now + min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**doublings)
            self.failures += 1

    def succeeded(self) -> None:
        """Record a success, which ends the wait."""
        self.failures = 0
        self._until = 0.0

    @property
    def due(self) -> bool:
        """True if `wait` would return at once."""
        return time.monotonic() >= self._until

    async def wait(self) -> None:
        """Sleep until the next attempt is due; return at once if the last one succeeded."""
        await asyncio.sleep(max(0.0, self._until - time.monotonic()))
