"""Benchmarks: their published rows, from the hub or from files, and the tasks that a judge gets from each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tirjudge.data.rows import BadRow, Row, is_file_name
from tirjudge.data.sources import HubRows, RowSource, open_rows, split_names
from tirjudge_environments import JudgeTask
from tirjudge_environments.orders import Order
from tirjudge_environments.tasks import RowError, read_task

Fields = dict[str, Any]
"""A row in the columns of `tirjudge judge`: `id`, `prompt`, `responses`, `label`, `domain`, `tags`, ...

The results of each `domain` are printed as a section."""


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


class BenchmarkRows:
    """A RowSource of a benchmark's tasks, in the columns of `tirjudge judge`."""

    def __init__(
        self,
        benchmark: Benchmark,
        parts: Iterable[str] = (),
        data: Mapping[str, str] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Open the parts of these names, by default the standard ones.

        `data` maps a part to a file or folder that is read instead of the hub. `alone` says that the judge
        sees every response by itself. Raises ValueError, in one line, if rows are not available, and OSError.
        """
        self.name = benchmark.name
        self._benchmark, self._alone = benchmark, alone
        self._sources = [
            (name, source)
            for part in benchmark.chosen_parts(parts)
            for name, source in _sources(benchmark, part, (data or {}).get(part.name))
        ]

    def __iter__(self) -> Iterator[Row | BadRow]:
        for part, source in self._sources:
            for number, row in enumerate(source, 1):
                if isinstance(row, BadRow):
                    yield row
                else:
                    yield from self._asked(row, part, number)

    def count(self) -> int:
        """Count the tasks in one pass over the rows."""
        return sum(1 for _ in self)

    @property
    def notes(self) -> list[str]:
        """Properties of the files that a user may not expect, one line each (see `RowFile`)."""
        return [note for _, source in self._sources for note in getattr(source, "notes", ())]

    def is_at(self, path: Path) -> bool:
        """Return True if the rows are read from this path."""
        return any(source.is_at(path) for _, source in self._sources)

    def tasks(self) -> Iterator[JudgeTask]:
        """Yield the tasks. Raises RowError for a row that is not a task."""
        for row in self:
            if isinstance(row, BadRow):
                raise RowError(f"{row.where}: {row.reason}")
            yield read_task(row.fields, default_id=row.default_id)

    def _asked(self, row: Row, part: str, number: int) -> Iterator[Row | BadRow]:
        published = PublishedRow(row.fields, part, number, self._alone)
        try:
            for fields in self._benchmark.read(published):
                given = {column: value for column, value in fields.items() if value is not None}
                yield Row(row.where, row.default_id, given)
        except ValueError as error:
            yield BadRow(row.where, str(error))
        except (ArithmeticError, AttributeError, LookupError, TypeError):
            name = self._benchmark.name
            yield BadRow(row.where, f"not a row of {name}: a value of another kind than the published ones")


def missing(part: Part) -> str:
    """Return the option that is needed to read this part; empty if none is."""
    return "" if part.hub else f"--data {part.name}=FILE: no public id is known"


def _sources(benchmark: Benchmark, part: Part, given: str | None) -> list[tuple[str, RowSource]]:
    """Return the sources of a part's rows, each with the prefix of their ids."""
    if given is not None and not _as_on_the_hub(part, Path(given)):
        return [(part.name, source) for source in _files(benchmark, given)]
    if given is None and not part.hub:
        raise ValueError(
            f"{benchmark.name}: the rows of {part.name} are not on the hub: give --data {part.name}=FILE"
        )
    place = given or part.hub
    if part.beside:
        first, second = (HubRows(place, file=file) for file in (part.file, part.beside))
        return [(part.name, _Joined(first, second))]
    if part.split or part.file:
        return [(part.name, HubRows(place, part.config, part.split, file=part.file))]
    splits = split_names(place, part.config)
    return [(f"{part.name}/{split}", HubRows(place, part.config, split)) for split in splits]


def _as_on_the_hub(part: Part, given: Path) -> bool:
    """Return True for a folder laid out as a hub dataset, unlike a folder of the authors' own files."""
    if not part.hub or not given.is_dir():
        return False
    if part.file:
        return (given / part.file).is_file()
    return (given / "README.md").is_file() or any(given.rglob("*.parquet"))


def _files(benchmark: Benchmark, given: str) -> list[RowSource]:
    """Return one file, or all files of rows below a folder, sorted."""
    place = Path(given)
    if not place.is_dir():
        return [open_rows(given, "jsonl" if place.suffix == ".jsonl" else None)]
    paths = sorted(path for path in place.rglob("*") if path.is_file() and is_file_name(str(path)))
    if not paths:
        raise ValueError(f"{benchmark.name}: there is no file of rows in {given}")
    return [open_rows(str(path)) for path in paths]


class _Joined:
    """Rows of two files, joined one by one."""

    def __init__(self, first: RowSource, second: RowSource) -> None:
        self.name, self._first, self._second = first.name, first, second

    def __iter__(self) -> Iterator[Row | BadRow]:
        for row, other in zip_longest(self._first, self._second):
            if isinstance(row, Row) and isinstance(other, Row):
                yield Row(row.where, row.default_id, {**row.fields, **other.fields})
            else:
                where = self._first.name if row is None else row.where
                yield BadRow(where, f"it has no matching row in {self._second.name}")

    def count(self) -> int | None:
        return self._first.count()

    def is_at(self, path: Path) -> bool:
        return self._first.is_at(path) or self._second.is_at(path)
