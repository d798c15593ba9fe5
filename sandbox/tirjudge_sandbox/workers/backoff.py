"""Exponential backoff between attempts, shared by everything that retries the same thing."""

from __future__ import annotations

import asyncio
import time

_FIRST_SECONDS, _LONGEST_SECONDS = 0.1, 10.0
_MOST_DOUBLINGS = 10
"""Bounds the exponent: 0.1 s doubled ten times is far beyond the longest wait."""


class Backoff:
    """Doubles the wait after each failure, from 0.1 s up to 10 s, and resets it after a success."""

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
