"""Who is next: clients take turns, and within a client the first to come is the first to go."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque


class Turns:
    """So many at once. A client with thousands in line delays another by one turn, not by thousands."""

    def __init__(self, count: int):
        self._left = count
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many are in line."""
        return sum(map(len, self._lines.values()))

    async def take(self, client: str) -> None:
        """Return when it is this client's turn, which `give` then ends."""
        if self._left:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._lines.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(client, turn)
            else:
                # It was given in the same moment.
                self.give()
            raise

    def give(self) -> None:
        """End a turn: the next in line gets it."""
        while self._lines:
            client, line = self._lines.popitem(last=False)
            turn = line.popleft()
            if line:
                # Behind all others that wait.
                self._lines[client] = line
            # One that was cancelled may not have noticed yet.
            if not turn.done():
                turn.set_result(None)
                return
        self._left += 1

    def _leave(self, client: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(client, deque())
        if turn in line:
            line.remove(turn)
            if not line:
                del self._lines[client]
