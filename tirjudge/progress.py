"""Progress of long work: one line from time to time with the count, the rate and the time left."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from tirjudge.console_text import duration, printable

T = TypeVar("T")

SECONDS = 30.0
"""Time between two lines of progress in a log; on a terminal the line is new every second."""
CLEAR = "\r\x1b[K"
"""The characters that erase the current line of a terminal."""
_PASSING: ContextVar[bool] = ContextVar("_PASSING", default=False)
"""True while a line of progress is said, which the next line may replace on a terminal."""
_LONGEST_LINE = 1000
"""Characters of a line on standard error; the rest is cut off."""
_LATENCIES = 2.0
"""Times of the first piece of work after which the time left is estimated."""


class ProgressReporter:
    """Counts finished pieces of work, and says so from time to time.

    A line reads `NAME: 120 of 1,000 rows, 2.40 per second, DETAIL, 6 min left`, without the parts that are
    not known.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        name: str = "",
        unit: str = "rows",
        total: int | None = None,
        *,
        done: int = 0,
        detail: Callable[[], str] = lambda: "",
    ) -> None:
        """`say` receives the lines. `total` pieces are counted to, if known, and `done` of them are done.

        `detail` describes the results so far, and is called when a line is due.
        """
        self._say, self._name, self._unit, self._detail = say, name, unit, detail
        self.total, self.done = total, done
        self._first = done
        self._latency: float | None = None
        self.restart()

    def restart(self) -> None:
        """Start the clock now: loading a model, for example, says nothing about the rate."""
        self._begun = self._said = time.monotonic()
        self._latency = None

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    @property
    def rate(self) -> float:
        """Pieces of work done in one second since the start."""
        return (self.done - self._first) / max(self.seconds, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds left; None without a total, and before the rate says anything.

        Work is done side by side: until the first pieces are through, the rate is that of none, and then that
        of a few. From twice the time of the first piece on, the rate is at most half of the true one too low.
        """
        worked = self.done > self._first and self._latency is not None
        if self.total is None or not worked or self.seconds < _LATENCIES * (self._latency or 0.0):
            return None
        return max(0, self.total - self.done) / self.rate

    def count(self, item: T) -> T:
        """Count one piece of work and return it, so that a stream can be counted while it passes."""
        self.show(self.done + 1, self.total)
        return item

    def finished(self) -> None:
        """Count one piece of work without a line."""
        self.done += 1
        self._note()

    def _note(self) -> None:
        """Keep the time of the first piece that is done."""
        if self._latency is None and self.done > self._first:
            self._latency = self.seconds

    def show(self, done: int, total: int | None) -> None:
        """Take over a count, and report it if a line is due."""
        self.done, self.total = done, total
        self._note()
        if time.monotonic() - self._said >= (min(1.0, SECONDS) if on_terminal() else SECONDS):
            self.report()

    def report(self) -> None:
        """Say the line now."""
        self._said = time.monotonic()
        token = _PASSING.set(True)
        self._say(self.line)
        _PASSING.reset(token)

    @property
    def line(self) -> str:
        """The line of progress."""
        of = "" if self.total is None else f" of {self.total:,}"
        one = (self.done if self.total is None else self.total) == 1
        parts = [f"{self.done:,}{of} {self._unit.removesuffix('s') if one else self._unit}"]
        parts += [f"{self.rate:,.2f} per second"] if self.done > self._first else []
        parts += [detail] if (detail := self._detail()) else []
        parts += [f"{duration(left)} left"] if (left := self.left) is not None else []
        return (f"{self._name}: " if self._name else "") + ", ".join(parts)


def on_terminal() -> bool:
    """Return True if standard error is a terminal, on which a line can be replaced."""
    return sys.stderr is not None and sys.stderr.isatty()


def say(line: str) -> None:
    """Print untrusted text as one line on standard error; on a terminal it replaces a line of progress."""
    width = shutil.get_terminal_size().columns - 1 if _PASSING.get() and on_terminal() else _LONGEST_LINE
    begin, end = (CLEAR, "" if _PASSING.get() else "\n") if on_terminal() else ("", "\n")
    print(f"{begin}{printable(line, width)}", end=end, file=sys.stderr, flush=True)


def show_rows(reporter: ProgressReporter, done: int, total: int) -> None:
    """Show rows done and rows in all, and all of them in a line that stays."""
    if done == total:
        say(f"{done} of {total} row{'s' * (total != 1)} judged")
    else:
        reporter.show(done, total)
