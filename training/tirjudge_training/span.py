"""Durations in words."""

from __future__ import annotations


def span(least: float, most: float) -> str:
    """Format a range of seconds, such as `2.0 to 3.5 h`; a single duration if both ends read alike."""
    shown = _duration(least), _duration(most)
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return "under 1 min"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
