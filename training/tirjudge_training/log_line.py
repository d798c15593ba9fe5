"""How a run goes: lines with the time of day on standard error."""

from __future__ import annotations

import time

from tirjudge.cli.errors import say


def log(line: str) -> None:
    say(f"{time.strftime('%H:%M:%S')} {line}")
