"""Foreign text made fit for a terminal."""

from __future__ import annotations


def printable(text: str, limit: int = 400) -> str:
    """One line, cut at `limit`, in which control characters and others that print nothing show as escapes."""
    shown = "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
