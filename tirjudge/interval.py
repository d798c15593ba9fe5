"""Whether it is time again: for lines about work that goes on."""

from __future__ import annotations

import time

SECONDS = 10.0


class Interval:
    """Begins when it is made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def over(self) -> bool:
        """Whether SECONDS have passed; then the next one begins."""
        now = time.monotonic()
        if now - self._begun < SECONDS:
            return False
        self._begun = now
        return True
