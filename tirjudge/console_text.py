"""Text for the terminal: escaped and shortened, errors in one line, progress lines throttled."""

from __future__ import annotations

import time

SECONDS = 10.0
"""Time between two progress lines."""


def printable(text: str, limit: int = 400) -> str:
    """Escape untrusted text for the terminal: one line of at most `limit` characters.

    Control characters, and others that print nothing, are shown as escapes.
    """
    shown = "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's message; the name of its class if there is none.

    The other lines of a library's error are usually advice for programmers.
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class Interval:
    """A throttle for progress lines: `over` is true once per SECONDS, counted from the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def over(self) -> bool:
        """Return True if SECONDS have passed since the last True; the next interval then begins."""
        now = time.monotonic()
        if now - self._begun < SECONDS:
            return False
        self._begun = now
        return True
