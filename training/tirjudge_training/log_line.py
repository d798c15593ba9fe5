"""Progress lines of a run, with the time of day, on standard error."""

from __future__ import annotations

import time

from tirjudge.cli.errors import say


def log(line: str) -> None:
    """Print one line of progress to standard error."""
    say(f"{time.strftime('%H:%M:%S')} {line}")
