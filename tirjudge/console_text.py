"""Foreign text made fit for a terminal."""

from __future__ import annotations

import time


def printable(text: str, limit: int = 400) -> str:
    """One line, cut at `limit`, in which control characters and others that print nothing show as escapes."""
    shown = "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def first_line(error: BaseException) -> str:
    """The first line that is not empty; the name of the error's class where there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


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
