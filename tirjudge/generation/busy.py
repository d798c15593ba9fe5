"""How long a generator was at work, however many completions it computes at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class BusyClock:
    """Wall time in which at least one piece of work was under way. One thread works, any may look."""

    def __init__(self) -> None:
        self.running = 0
        """Pieces that are at work now."""
        self._state: tuple[float, float | None] = (0.0, None)
        """Seconds, and since when there are more; one attribute, so that no thread sees half of a change."""

    @property
    def seconds(self) -> float:
        """Up to now, what is under way included."""
        before, since = self._state
        return before if since is None else before + time.perf_counter() - since

    @contextmanager
    def working(self) -> Iterator[None]:
        if not self.running:
            self._state = (self.seconds, time.perf_counter())
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self._state = (self.seconds, None)
