"""How a long work goes on: a line now and then, with its rate and what is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tirjudge.console_text import Interval

T = TypeVar("T")


class Pace:
    """Counts what passes, and says so; `total` is None where nobody knows it."""

    def __init__(self, what: str, unit: str, total: int | None, say: Callable[[str], None]) -> None:
        self._what, self._unit, self._total, self._say = what, unit, total, say
        self._count = 0
        self._begun, self._interval = time.monotonic(), Interval()

    def passed(self, one: T) -> T:
        self._count += 1
        if self._interval.over():
            self._say(self._line(self._count / (time.monotonic() - self._begun)))
        return one

    def _line(self, rate: float) -> str:
        if self._total is None:
            return f"{self._what}: {self._count:,} {self._unit}, {rate:,.1f} a second"
        left = max(0, self._total - self._count) / rate
        of = f"{self._count:,} of {self._total:,} {self._unit}"
        return f"{self._what}: {of}, {rate:,.1f} a second, {left / 60:,.0f} min left"
