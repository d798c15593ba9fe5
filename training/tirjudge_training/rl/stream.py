"""The stream of training rows that an RL stage draws from, batches and replacements alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tirjudge_training.rl.dynamic_sampling import FormattedTask

STREAM = "stream.jsonl"
"""The file of an RL stage with the place in its stream after each batch."""


class RowStream:
    """Shuffled passes over training rows, each of which is drawn once per pass (as by verl's data loader).

    Replacements of groups without a learning signal come from further along the same stream, so that the rows
    of a pass are used up by batches and replacements together. How far a batch gets depends on what the model
    answers; the place is therefore stored after every batch, and a resumed run goes on from there.
    """

    def __init__(
        self, row: Callable[[int], FormattedTask], *, per_pass: int, limit: int | None = None
    ) -> None:
        """
        Args:
            row: the row at a position of the endless stream, a pure function.
            per_pass: rows of one pass.
            limit: rows after which the stream ends; None never ends it.
        """
        self._row, self._per_pass, self._limit = row, per_pass, limit
        self._next = 0
        self._deferred: tuple[int, ...] = ()

    def __call__(self, position: int) -> FormattedTask | None:
        """Return the row at a position counted from the first undrawn row; None after the end."""
        number = self._number(position)
        return None if self._limit is not None and number >= self._limit else self._row(number)

    def draw(self, positions: Sequence[int]) -> None:
        """Remove the rows at these positions; those before the last of them come first in the next draw."""
        drawn = set(positions)
        upto = max(drawn, default=-1) + 1
        passed = [self._number(position) for position in range(upto) if position not in drawn]
        waiting = self._deferred[upto:]
        self._next += max(0, upto - len(self._deferred))
        self._deferred = (*passed, *waiting)

    @property
    def exhausted(self) -> bool:
        """True if no row is left before the limit."""
        return self._limit is not None and self._next >= self._limit and not self._deferred

    @property
    def seen(self) -> int:
        """Number of rows drawn since the start of the stage."""
        return self._next - len(self._deferred)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of a batch: rows drawn since the start of the stage, and in how many passes."""
        return {"rows/seen": self.seen, "rows/passes": self.seen / self._per_pass}

    @property
    def place(self) -> dict[str, Any]:
        """The place in the stream, as `go_to` takes it."""
        return {"next": self._next, "deferred": list(self._deferred)}

    def go_to(self, place: Mapping[str, Any]) -> None:
        """Go to a `place` that was stored after a batch."""
        self._next, self._deferred = int(place["next"]), tuple(place["deferred"])

    def _number(self, position: int) -> int:
        if position < len(self._deferred):
            return self._deferred[position]
        return self._next + position - len(self._deferred)


TaskSource = Callable[[int, int, int], FormattedTask] | RowStream
"""Maps (step, round, position) to a task by a pure function, so that a resumed run gets the tasks of an
uninterrupted one; or rows whose place in the stream is stored after every batch."""
