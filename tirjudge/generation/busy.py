"""How long a generator was at work, however many completions it computes at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class BusyClock:
    """Wall time in which at least one completion was computed, or waited for. Belongs to one event loop."""

    def __init__(self) -> None:
        self.running = 0
        """Completions that are at work now."""
        self.seconds = 0.0
        """Up to the last moment at which none was."""
        self._since = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        if not self.running:
            self._since = time.perf_counter()
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self.seconds += time.perf_counter() - self._since
