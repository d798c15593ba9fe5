"""The interface of a stored-output format, which turns the rows of a file into judged rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from tirjudge.evaluation.base import JudgedRow

Fields = Mapping[str, Any]


class Unreadable(ValueError):
    """A row does not have its format's shape; the message says in one line what is wrong."""


class StoredOutputFormat(Protocol):
    """A format in which one project stores its judges' outputs; registered in `tirjudge.stored_outputs`."""

    @property
    def name(self) -> str:
        """Equals the name of the format's entry point."""
        ...

    @property
    def about(self) -> str:
        """Project and files, in one line."""
        ...

    @property
    def benchmark(self) -> str:
        """Benchmark whose published figures are printed with the scores; empty if the format has none."""
        ...

    @property
    def protocols(self) -> tuple[str, ...]:
        """Names of the default protocols."""
        ...

    def recognises(self, row: Fields) -> bool:
        """Return True if a file whose first row is `row` has this format; at most one format may."""
        ...

    def read(self, row: Fields, label: Fields | None, default_id: str) -> Iterable[JudgedRow]:
        """Read one row; `label` is the matching row of the file of labels, if there is one.

        Raises Unreadable, KeyError, TypeError or ValueError for a row of another shape.
        """
        ...


def pair_vote(first: float, second: float) -> tuple[int, ...]:
    """Return the candidates with the higher number; both for equal numbers, none if one is not finite."""
    if not (math.isfinite(first) and math.isfinite(second)):
        return ()
    if first == second:
        return 0, 1
    return (0,) if first > second else (1,)
