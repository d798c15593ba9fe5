"""Files of a run: several files or a glob, standard input, their rows, and the labels beside them."""

from __future__ import annotations

import glob
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from tirjudge.data.rows import STANDARD_INPUT, BadRow, Row, RowFile, open_file
from tirjudge.evaluation.stored_outputs.base import Record, Unreadable
from tirjudge.storage.json_lines import LONGEST_LINE

_STANDARD_INPUT = "standard input"


class RunFiles:
    """The rows of a run's files, read from the start at each iteration.

    A path may be a glob, and `-` is standard input. Pipes are copied to a temporary file first, because a run
    is read once for each protocol. Raises ValueError for a glob that matches nothing, OSError for a missing
    file.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(found for path in paths for found in matching_files(path))
        pipes = [path for path in self.paths if str(path) == STANDARD_INPUT or path.is_fifo()]
        self._copies = {path: _copied(path) for path in pipes}
        names = [path.name for path in self.paths]
        self._distinct = names if len(set(names)) == len(names) else list(map(str, self.paths))

    @property
    def name(self) -> str:
        """The name of the run for messages and tables."""
        first = _name(self.paths[0])
        return first if len(self.paths) == 1 else f"{first} and {len(self.paths) - 1} more"

    def __iter__(self) -> Iterator[Row]:
        for path, prefix in zip(self.paths, self._distinct, strict=True):
            for row in self._file(path):
                if len(self.paths) == 1:
                    yield row
                else:
                    # Rows without an id of their own are numbered in each file.
                    yield Row(row.where, f"{prefix}/{row.default_id}", row.fields)

    @property
    def one_object(self) -> bool:
        """True if the first file has one row, which may be an object of lists."""
        return len(list(islice(self._file(self.paths[0]), 2))) < 2

    def _file(self, path: Path) -> Iterator[Row]:
        """Yield the rows of JSON lines or of a table, or the one object that is the whole file."""
        copy = self._copies.get(path)
        place, name = (path, str(path)) if copy is None else (Path(copy.name), _name(path))
        whole = _object(place, name)
        if whole is not None:
            yield Row(name, "item-1", whole)
            return
        for row in RowFile(str(place), name=name):
            if isinstance(row, BadRow):
                raise ValueError(f"{row.where}: {row.reason}")
            yield row


class SwappedFiles:
    """The rows of a run, each with the verdict of the row in the same place of a second file.

    Raises ValueError if the second file has more or fewer rows.
    """

    def __init__(
        self,
        files: RunFiles,
        swapped: RunFiles,
        merge: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        """`merge` returns the fields of a row with the verdict of the other one."""
        self.paths, self.name = files.paths, files.name
        self._files, self._swapped, self._merge = files, swapped, merge

    def __iter__(self) -> Iterator[Row]:
        for number, (row, other) in enumerate(zip_longest(self._files, self._swapped), 1):
            if row is None or other is None:
                longer, shorter = (
                    (self._files, self._swapped) if other is None else (self._swapped, self._files)
                )
                raise ValueError(
                    f"{longer.paths[0]} has more than the {number - 1} rows of {shorter.paths[0]}"
                )
            try:
                yield Row(row.where, row.default_id, self._merge(row.fields, other.fields))
            except ValueError as error:
                raise ValueError(f"{other.where}: {error}") from None


def matching_files(path: Path) -> list[Path]:
    """Return the files of a glob, sorted; an existing file is no glob, whatever its name."""
    text = str(path)
    if text == STANDARD_INPUT or path.exists() or not glob.has_magic(text):
        return [path]
    found = sorted(map(Path, glob.glob(text, recursive=True)))
    if not found:
        raise ValueError(f"no file matches {text}")
    return found


def _copied(path: Path) -> Any:
    copy = tempfile.NamedTemporaryFile(prefix="tirjudge-")  # noqa: SIM115 (closed with the run)
    source = 0 if str(path) == STANDARD_INPUT else path
    with open(source, "rb", closefd=source != 0) as pipe:
        shutil.copyfileobj(pipe, copy)
    copy.flush()
    return copy


def _name(path: Path) -> str:
    return _STANDARD_INPUT if str(path) == STANDARD_INPUT else path.name


def _object(path: Path, name: str) -> Mapping[str, Any] | None:
    """Return the content of a file that is one JSON object over several lines; None for other files."""
    with open_file(path, name) as file:
        first = file.readline(LONGEST_LINE).strip()
        # A row of JSON lines is complete in the first line, and an object over several lines is not.
        if not first.startswith(b"{") or first.endswith(b"}"):
            return None
        try:
            value = json.loads(first + file.read())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}: neither JSON lines nor one JSON object: {error}") from None
    return value if isinstance(value, dict) else None


KEYS = ("idx", "pair_id", "id", "index")
"""Columns that rows are joined by: the first of these that both files have."""


@dataclass(frozen=True, slots=True)
class JoinedBy:
    """The columns by which labels are joined with rows of results."""

    columns: tuple[str, ...] = KEYS
    """The first of these columns that both files have."""
    key: Callable[[Record], str] | None = None
    """Returns the key of a row of either file, if the user named the column of the ids."""


BY_KEYS = JoinedBy()


class BadLabels(Unreadable):
    """The file of labels is wrong, whatever the results; the message names its file and line."""


class NoLabel(Unreadable):
    """The file of labels has no row for a row of results."""


def key_of(fields: Record, column: str) -> str:
    """Return the key of a row in one of its columns. Raises Unreadable without it."""
    if column not in fields:
        raise Unreadable(f"no column {column!r} to join by")
    if fields[column] in (None, ""):
        raise Unreadable(f"no value in the column {column!r}, by which labels are joined")
    return str(fields[column])


def rows_by_key(rows: Iterable[Row], key: Callable[[Record], str]) -> dict[str, Row]:
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

    def __init__(self, rows: Iterable[Row], name: str, join: JoinedBy = BY_KEYS) -> None:
        self.name = name
        self._rows = list(rows)
        self._own_key, self._keys = join.key, join.columns
        self._by_key: dict[str, Row] | None = None
        self._columns: tuple[str, str] = ("", "")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def joined_by(self) -> str:
        """Name of the column that rows were joined by; `position` without one."""
        return "id" if self._own_key is not None else self._columns[1] or "position"

    def find(self, row: Row, position: int) -> Row | None:
        """Return the label of a row of results, at `position` among them from 0; None if it has no label.

        Raises BadLabels for a file that cannot be joined, and Unreadable for a row of results without a key.
        """
        if self._by_key is None:
            self._by_key = self._joined(row.fields)
        if not self._by_key:
            return self._rows[position] if position < len(self._rows) else None
        return self._by_key.get(self._key(row.fields, self._columns[0]))

    def label(self, row: Row, position: int) -> LabelRow:
        """Return the label of a row of results, which is the one at `position`, from 0, in its file."""
        return LabelRow(lambda: self._find(row, position))

    def check_length(self, rows: int, run: str) -> None:
        """Raise ValueError if labels that were joined by position are more or fewer than the run's rows."""
        # Empty and not None: labels were looked up, and by position.
        if self._by_key == {} and rows != len(self._rows):
            raise ValueError(
                f"{self.name} has {len(self._rows)} labels and {run} has {rows} rows: without a column to "
                f"join by ({', '.join(KEYS)}), positions count, and one row more or fewer moves every label"
            )

    def _find(self, row: Row, position: int) -> Row:
        found = self.find(row, position)
        if found is not None:
            return found
        if not self._by_key:
            raise BadLabels(
                f"{self.name} has only {len(self._rows)} labels, which are joined by position, and the "
                "run has more rows"
            )
        raise NoLabel(f"{self.name} has no row {self._key(row.fields, self._columns[0])!r}")

    def _joined(self, fields: Record) -> dict[str, Row]:
        """Return the rows by key; empty if neither file has a column to join by, so that positions count."""
        if self._own_key is None:
            self._columns = self._join_columns(fields)
            if not all(self._columns):
                return {}
        return rows_by_key(self._rows, lambda fields: self._key(fields, self._columns[1]))

    def _join_columns(self, fields: Record) -> tuple[str, str]:
        """Return the columns to join by in the results and here; empty texts for the position."""
        here = [key for key in self._keys if self._rows and key in self._rows[0].fields]
        there = [key for key in self._keys if key in fields]
        if not here and not there:
            return "", ""
        if not here or not there:
            lacking = self.name if there else "the results"
            raise BadLabels(f"{lacking}: no column to join labels by: one of {', '.join(KEYS)}")
        both = [key for key in there if key in here]
        return (both[0], both[0]) if both else (there[0], here[0])

    def _key(self, fields: Record, column: str) -> str:
        return key_of(fields, column) if self._own_key is None else self._own_key(fields)


class LabelRow(Mapping[str, Any]):
    """The label of a row, which is looked up when it is first used."""

    def __init__(self, find: Callable[[], Row]) -> None:
        self._find = find
        self._row: Row | None = None
        self.missing = False
        """True if the format has looked for the label, and there is none."""

    @property
    def used(self) -> bool:
        """True if the format has looked into the label, or for it."""
        return self._row is not None or self.missing

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
            try:
                self._row = self._find()
            except NoLabel:
                self.missing = True
                raise
        return self._row
