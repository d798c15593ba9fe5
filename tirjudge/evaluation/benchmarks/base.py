"""The interface of a benchmark: where its published rows are, and the tasks that a judge gets from each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tirjudge_environments.orders import Order
from tirjudge_environments.tasks import RowError

Fields = dict[str, Any]
"""A row in the columns of `tirjudge judge`: `id`, `prompt`, `responses`, `label`, `domain`, `tags`, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a benchmark: one split, or one file."""

    name: str
    """Selects the part on the command line; unique within the benchmark."""
    hub: str = ""
    """`owner/name` on the Hugging Face hub. Empty if no public id is known: rows are a local file."""
    config: str | None = None
    """Configuration of the hub dataset."""
    split: str | None = None
    """Split of the hub dataset; None for all splits."""
    file: str | None = None
    """One file of the dataset, if its files differ in columns."""
    beside: str | None = None
    """A second file of the dataset, whose rows extend those of `file` one by one."""
    rows: int | None = None
    """Published number of rows; None if unknown."""
    ids: str = ""
    """Digest of the ids of all rows (`tirjudge.evaluation.runs.ids_digest`); empty if unknown."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row in the columns in which it was published."""

    fields: Mapping[str, Any]
    part: str
    number: int
    """Position in its part, from 1."""
    alone: bool
    """True if the judge sees every response by itself, so that several pairs would repeat judgments."""

    def need(self, name: str) -> Any:
        """Return a column's value. Raises RowError if it is missing."""
        value = self.fields.get(name)
        if value is None:
            raise RowError(f"no column {name!r}")
        return value

    def several(self, name: str, count: int | None = None) -> list[Any]:
        """Return a column that is a non-empty list. Raises RowError for other values and other lengths."""
        value = self.need(name)
        if not isinstance(value, list) or not value or (count is not None and len(value) != count):
            raise RowError(f"{name} must be a list of {count or 'one or more'}")
        return value

    def within(self, name: str, key: str) -> Any:
        """Return a value inside a column that is an object. Raises RowError if it is missing."""
        value = self.need(name)
        if not isinstance(value, Mapping) or value.get(key) is None:
            raise RowError(f"{name} must be an object with {key!r}")
        return value[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A benchmark: its rows, the tasks made from each, and the protocols that score it."""

    name: str
    """Equals the name of the benchmark's entry point."""
    about: str
    """What a right answer shows, and the paper, in one line."""
    parts: tuple[Part, ...]
    standard: tuple[str, ...] = ()
    """Parts that are judged by default; empty for all."""
    columns: Mapping[str, str]
    """Columns that are read, with their meaning."""
    protocols: tuple[str, ...]
    """Names of its protocols, the authors' own rule first."""
    licence: str
    """As its publisher states it."""
    row_by_row: bool = True
    """False if a published row may become no unit of a protocol, or several; such rows cannot be counted."""
    sections: Mapping[str, int] = field(default_factory=dict)
    """Rows of the standard parts in each domain; empty if unknown."""
    order: Order | None = None
    """Orders of the responses that the authors' rule needs; None for the judge's default."""
    format: str = ""
    """Judge format that it needs; empty to choose by the number of responses."""
    example: Mapping[str, Any]
    """A row in the published columns."""
    read: Callable[[PublishedRow], Iterable[Fields]]
    """Turns a row into tasks: one, several or none. Raises RowError."""

    def chosen_parts(self, names: Iterable[str] = ()) -> tuple[Part, ...]:
        """Return the named parts, by default the standard ones. Raises ValueError for an unknown name."""
        known = {part.name: part for part in self.parts}
        wanted = tuple(names) or self.standard or tuple(known)
        for name in wanted:
            if name not in known:
                raise ValueError(f"{self.name} has no part {name!r}; there are {', '.join(known)}")
        return tuple(known[name] for name in wanted)
