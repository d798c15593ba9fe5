"""Labels in a file of their own, joined with the rows of results by a key or by their position."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tirjudge.data.rows import Row
from tirjudge.evaluation.stored_outputs.base import Fields, Unreadable

KEYS = ("idx", "pair_id", "id", "index")
"""Columns that rows are joined by: the first of these that both files have."""


class BadLabels(Unreadable):
    """The file of labels is wrong, whatever the results; the message names its file and line."""


def key_of(fields: Fields, column: str) -> str:
    """Return the key of a row in one of its columns. Raises Unreadable without it."""
    if column not in fields:
        raise Unreadable(f"no column {column!r} to join by")
    return str(fields[column])


def rows_by_key(rows: Iterable[Row], key: Callable[[Fields], str]) -> dict[str, Row]:
    """Return rows of labels by their keys. Raises BadLabels for a row without one, and for a second one."""
    found: dict[str, Row] = {}
    for row in rows:
        try:
            name = key(row.fields)
        except Unreadable as error:
            raise BadLabels(f"{row.where}: {error}") from None
        if name in found:
            earlier = found[name]
            differ = "" if earlier.fields == row.fields else ", and they differ"
            raise BadLabels(
                f"{row.where}: two rows have the key {name!r} (the other: {earlier.where}){differ}"
            )
        found[name] = row
    return found


class LabelFile:
    """The rows of a file of labels.

    Its labels raise BadLabels if two rows have the same key, or if there is none to join by.
    """

    def __init__(self, rows: Iterable[Row], name: str, key: Callable[[Fields], str] | None = None) -> None:
        """`key` returns the key of a row, if it is not one of the columns in KEYS."""
        self.name = name
        self._rows = list(rows)
        self._own_key = key
        self._by_key: dict[str, Row] | None = None
        self._columns: tuple[str, str] = ("", "")

    def __len__(self) -> int:
        return len(self._rows)

    def label(self, row: Row, position: int) -> LabelRow:
        """Return the label of a row of results, which is the one at `position`, from 0, in its file."""
        return LabelRow(lambda: self._find(row, position))

    def _find(self, row: Row, position: int) -> Row:
        if self._by_key is None:
            self._by_key = self._joined(row.fields)
        if not self._by_key:
            if position >= len(self._rows):
                raise Unreadable(f"{self.name} has only {len(self._rows)} rows, which are joined by position")
            return self._rows[position]
        key = self._key(row.fields, self._columns[0])
        if key not in self._by_key:
            raise Unreadable(f"{self.name} has no row {key!r}")
        return self._by_key[key]

    def _joined(self, fields: Fields) -> dict[str, Row]:
        """Return the rows by key; empty if neither file has a column to join by, so that positions count."""
        if self._own_key is None:
            self._columns = self._join_columns(fields)
            if not all(self._columns):
                return {}
        return rows_by_key(self._rows, lambda fields: self._key(fields, self._columns[1]))

    def _join_columns(self, fields: Fields) -> tuple[str, str]:
        """Return the columns to join by in the results and here; empty texts for the position."""
        here = [key for key in KEYS if self._rows and key in self._rows[0].fields]
        there = [key for key in KEYS if key in fields]
        if not here and not there:
            return "", ""
        if not here or not there:
            lacking = self.name if there else "the results"
            raise BadLabels(f"{lacking}: no column to join by: one of {', '.join(KEYS)}")
        both = [key for key in there if key in here]
        return (both[0], both[0]) if both else (there[0], here[0])

    def _key(self, fields: Fields, column: str) -> str:
        return key_of(fields, column) if self._own_key is None else self._own_key(fields)


class LabelRow(Mapping[str, Any]):
    """The label of a row, which is looked up when it is first used."""

    def __init__(self, find: Callable[[], Row]) -> None:
        self._find = find
        self._row: Row | None = None

    @property
    def used(self) -> bool:
        """True if the format has looked into the label."""
        return self._row is not None

    @property
    def where(self) -> str:
        """File and line of the label."""
        return self._found().where

    def __getitem__(self, column: str) -> Any:
        return self._found().fields[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found().fields)

    def __len__(self) -> int:
        return len(self._found().fields)

    def _found(self) -> Row:
        if self._row is None:
            self._row = self._find()
        return self._row
