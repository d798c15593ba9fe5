"""Rows from files: JSON lines, JSON, CSV or Parquet, plain, gzip or xz; bad rows are yielded, not raised."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args
from uuid import UUID

from tirjudge.data.documents import is_wrapped, objects_of, rows_in
from tirjudge.data.files import FALLBACK, PEEKED, STANDARD_INPUT, checked_encoding, open_file, opened_pipe
from tirjudge.data.tables import BadHeader, Dialect, table_rows
from tirjudge.storage.json_lines import bounded_lines

__all__ = ["STANDARD_INPUT", "BadRow", "Row", "RowFile", "RowFormat", "is_file_name", "open_file"]

RowFormat = Literal["jsonl", "json", "csv", "parquet"]

_SUFFIXES: Mapping[str, RowFormat] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv"), "csv"),
    ".parquet": "parquet",
}
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_PARQUET = b"PAR1"
_TAR, _TAR_AT = b"ustar", 257
_UNPACKED = "decompress it first, or compress it with gzip or xz"
_PAGE = "a web page, as some programs name `.xls`: save the table as CSV UTF-8"
_PICKLE = "a Python pickle, which is never opened: write its rows as Parquet or JSON lines"
_FOREIGN = (
    (b"PK\x03\x04", "an Excel workbook or another zip file: save the sheet as CSV UTF-8"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save the sheet as CSV UTF-8"),
    *((b"BZh%d1AY&SY" % level, f"compressed with bzip2: {_UNPACKED}") for level in range(1, 10)),
    (b"\x28\xb5\x2f\xfd", f"compressed with zstd: {_UNPACKED}"),
    (b"\x04\x22\x4d\x18", f"compressed with lz4: {_UNPACKED}"),
    (b"\x5d\0\0", f"compressed with lzma: {_UNPACKED}"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first"),
    (b"Rar!\x1a\x07", "a RAR archive: unpack it first"),
    (b"ARROW1", "an Arrow file: write it as Parquet, with pandas.read_feather(...).to_parquet(...)"),
    (
        b"\xff\xff\xff\xff",
        "an Arrow stream: write it as Parquet, with datasets.load_from_disk(...).to_parquet(...)",
    ),
    (b"Obj\x01", "an Avro file: write its rows as Parquet or JSON lines"),
    (b"ORC", "an ORC file: write its rows as Parquet or JSON lines"),
    *((start, _PAGE) for start in (b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML", b"<table")),
    (b"SQLite format 3", "an SQLite database: export the table as CSV"),
    (b"\x89HDF", "an HDF5 file: write its rows as Parquet or JSON lines"),
    *((b"\x80%c\x95" % version, _PICKLE) for version in (4, 5)),
)
"""The first bytes of files that are no rows, and what to do with them."""
_PARQUET_BATCH = 64
_LABEL = b'"label"'
_PRETTY = re.compile(rb"\{[ \t]*\r?\n")
"""The start of a pretty-printed object; a JSON line never ends behind its opening brace."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of input, and where it comes from."""

    where: str
    """File and line (for a JSON array, file and item), as messages name it."""
    default_id: str
    """The id for a row without an id: `line-7`, `item-7`."""
    fields: Mapping[str, Any]
    beside: Path | None = None
    """The folder that names of files in the row are relative to; None if they may name nothing."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read."""

    where: str
    reason: str


class RowFile:
    """A file of rows, or standard input (`-`). All formats but JSON documents are streamed.

    gzip and xz are decompressed while they are read. Without `format`, the suffix decides (.csv, .tsv,
    .parquet, also before .gz and .xz), else the first bytes: `[` begins an array, `PAR1` is Parquet, a line
    with the delimiters of the lines below it is the header of a table, anything else is JSON lines. JSON may
    also be an object whose `data` (or `rows`, `examples`, ...) is the list of rows, a table as pandas writes
    it, and pretty-printed objects, one after the other. A file is UTF-8, or UTF-16 by its byte order mark; a
    row that is neither is read as cp1252. `notes` says so, in one line each.

    Raises ValueError, in one line, for a file without rows, an unknown format or encoding and damaged
    compression, and OSError for a file that cannot be opened.
    """

    def __init__(
        self, path: str, format: RowFormat | None = None, *, name: str = "", encoding: str = ""
    ) -> None:
        """`name` is the file's name for messages, by default its path.

        `encoding` is Python's name of the encoding of all rows; empty finds it out.
        """
        if format is not None and format not in get_args(RowFormat):
            raise ValueError(f"unknown input format {format!r}: use one of {', '.join(get_args(RowFormat))}")
        self.name = name or ("standard input" if path == STANDARD_INPUT else path)
        self._path = path
        self._beside = None if path == STANDARD_INPUT else Path(path).absolute().parent
        self._encoding = checked_encoding(encoding) if encoding else ""
        self._pipe = opened_pipe(path, self.name, self._encoding)
        self.notes: list[str] = []
        """Properties of the file that a user may not expect, one line each."""
        self._items: list[Any] | None = None
        self._count: int | None = None
        self._format = format or self._detected_format()
        self._dialect = Dialect()
        if self._format == "json" and self._items is None:
            self._items = self._array()
        if self._format == "csv":
            self._dialect = self._table_dialect()

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Read the rows; a pipe can be read only once."""
        if self._items is not None:
            for number, item in enumerate(self._items, 1):
                yield _row(item, f"{self.name}, item {number}", f"item-{number}", self._beside)
            return
        if self._format == "parquet":
            yield from self._from_parquet()
            return
        with self._open() as stream:
            yield from self._from_lines(stream) if self._format == "jsonl" else self._from_table(stream)

    def count(self) -> int | None:
        """Return the number of rows, after reading the file once.

        None for a pipe with rows, since a pipe can be read only once.
        """
        if self._items is not None:
            return len(self._items)
        if self._pipe is not None:
            return None if self._pipe.peek(1) else 0
        if self._count is None:
            self._count = self._counted()
        return self._count

    def _counted(self) -> int:
        if self._format == "parquet":
            return int(self._parquet().metadata.num_rows)
        with self._open() as stream:
            if self._format == "jsonl":
                return sum(1 for line in bounded_lines(stream, self.name) if line.strip())
            return sum(1 for _ in self._from_table(stream))

    def is_at(self, path: Path) -> bool:
        """Return True if this is the file at `path`, under whatever name."""
        return self._path != STANDARD_INPUT and Path(self._path).samefile(path)

    def _open(self) -> io.BufferedReader:
        if self._pipe is not None:
            return self._pipe
        return open_file(Path(self._path), self.name, self._encoding)

    def _start(self) -> bytes:
        """Return the start of the file as UTF-8, without its byte order mark."""
        if self._pipe is not None:
            start = self._pipe.peek(PEEKED)
        else:
            with self._open() as stream:
                start = stream.read(PEEKED)
        return start.removeprefix(b"\xef\xbb\xbf")

    def _detected_format(self) -> RowFormat:
        start = self._start()
        if start.startswith(_PARQUET):
            return "parquet"
        if foreign := next((remedy for mark, remedy in _FOREIGN if start.startswith(mark)), ""):
            raise ValueError(f"{self.name}: {foreign}")
        if start[_TAR_AT:].startswith(_TAR):
            raise ValueError(f"{self.name}: a tar archive: unpack it first")
        if (suffix := _suffix(self._path)) in _SUFFIXES:
            return _SUFFIXES[suffix]
        start = start.lstrip(b" \t\r\n")
        if start.startswith(b"["):
            return "json"
        if not start.startswith(b"{"):
            sample = start.decode(errors="replace")
            fits = suffix not in _JSON_SUFFIXES and Dialect.of(sample, whole=len(start) < PEEKED).fits
            return "csv" if fits else "jsonl"
        pretty = _PRETTY.match(start) is not None
        if pretty or self._is_one_line(start):
            self._items = self._objects(pretty=pretty)
        return "jsonl" if self._items is None else "json"

    def _is_one_line(self, start: bytes) -> bool:
        """Return True if a file has a single line, or if a pipe begins with a list of rows."""
        if self._pipe is not None:
            return is_wrapped(start.decode(errors="replace"))
        with self._open() as stream:
            lines = (line for line in bounded_lines(stream, self.name) if line.strip())
            return next(lines, None) is not None and next(lines, None) is None

    def _objects(self, *, pretty: bool) -> list[Any] | None:
        """Return the rows of a file of JSON objects; None for a file that is read line by line."""
        with self._open() as stream:
            content = stream.read()
        if self._pipe is not None:
            self._pipe = io.BufferedReader(io.BytesIO(content))
        found = objects_of(self._decoded(content), pretty=pretty)
        return None if found is None else self._noted(*found)

    def _noted(self, rows: list[Any], note: str) -> list[Any]:
        self.notes += [note] if note else []
        return rows

    def _array(self) -> list[Any]:
        with self._open() as stream:
            try:
                items = json.loads(self._decoded(stream.read()), object_pairs_hook=_distinct)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{self.name}: not JSON: {error}") from None
        found = rows_in(items)
        if found is None:
            raise ValueError(f"{self.name}: not a JSON array of rows")
        return self._noted(*found)

    def _decoded(self, content: bytes) -> str:
        """Decode text; raises UnicodeDecodeError. Bytes that are no UTF-8 are noted, and read as cp1252."""
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            if self._encoding:
                raise
        text = content.decode(FALLBACK)
        note = f"bytes that are no UTF-8 are read as {FALLBACK}; --encoding names another encoding"
        self.notes += [] if note in self.notes else [note]
        return text

    def _no_text(self) -> str:
        """Return why a row cannot be decoded."""
        if self._encoding:
            return f"not {self._encoding}"
        return f"neither UTF-8 nor {FALLBACK}: name its encoding with --encoding"

    def _from_lines(self, stream: BinaryIO) -> Iterator[Row | BadRow]:
        for number, line in enumerate(bounded_lines(stream, self.name), 1):
            if not line.strip():
                continue
            where = f"{self.name}:{number}"
            try:
                text = self._decoded(line.rstrip(b"\r\n"))
                # Looking at every key takes time, and only a repeated label misleads.
                item = json.loads(text, object_pairs_hook=_distinct if line.count(_LABEL) > 1 else None)
            except UnicodeDecodeError:
                yield BadRow(where, self._no_text())
            except json.JSONDecodeError as error:
                yield BadRow(where, f"not JSON: {error.msg} at column {error.colno}")
            except (ValueError, RecursionError) as error:
                yield BadRow(where, f"not JSON: {error}")
            else:
                yield _row(item, where, f"line-{number}", self._beside)

    def _from_parquet(self) -> Iterator[Row | BadRow]:
        number, file = 0, self._parquet()
        names = file.schema_arrow.names
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{self.name}: two columns have the name {twice[0]!r}: rename one of them")
        for batch in self._batches(file):
            for fields in _batch_rows(batch):
                number += 1
                where = f"{self.name}, item {number}"
                if fields is None:
                    yield BadRow(where, "a text that is not UTF-8")
                else:
                    yield Row(where, f"item-{number}", typed(fields), self._beside)

    def _batches(self, file: Any) -> Iterator[Any]:
        try:
            yield from file.iter_batches(batch_size=_PARQUET_BATCH)
        except (ValueError, OSError, NotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{self.name}: the Parquet data is damaged or unknown: {reason}") from None

    def _parquet(self) -> Any:
        try:
            from pyarrow.parquet import ParquetFile
        except ModuleNotFoundError:
            raise ValueError(f"{self.name}: Parquet needs an extra: pip install 'tirjudge[data]'") from None
        if self._pipe is not None:
            raise ValueError(f"{self.name}: Parquet is read from its end: give a file, not a pipe")
        try:
            return ParquetFile(self._path)
        except ValueError as error:
            raise ValueError(f"{self.name}: not Parquet: {str(error).splitlines()[0]}") from None

    def _table_dialect(self) -> Dialect:
        start = self._start()
        return Dialect.of(start.decode(errors="replace"), whole=len(start) < PEEKED)

    def _from_table(self, stream: BinaryIO) -> Iterator[Row | BadRow]:
        # Invalid bytes become lone surrogates, so that only their row is read otherwise.
        with io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            try:
                for row in table_rows(text, self._dialect):
                    where = f"{self.name}:{row.line}"
                    if row.fault:
                        yield BadRow(where, row.fault)
                        continue
                    try:
                        fields = {self._cell(name): self._cell(cell) for name, cell in row.fields.items()}
                    except UnicodeDecodeError:
                        yield BadRow(where, self._no_text())
                    else:
                        yield Row(where, f"line-{row.line}", fields, self._beside)
            except BadHeader as error:
                raise ValueError(f"{self.name}:{error.line}: {error}") from None

    def _cell(self, cell: Any) -> Any:
        """Return a cell whose text was not UTF-8 decoded; raises UnicodeDecodeError."""
        if cell is None or cell.isascii() or not any("\udc80" <= mark <= "\udcff" for mark in cell):
            return cell
        return self._decoded(cell.encode("utf-8", "surrogateescape"))


def _batch_rows(batch: Any) -> Iterator[Mapping[str, Any] | None]:
    """Yield the rows of a batch of Parquet; None for a row with a text that is not UTF-8."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for number in range(len(batch)):
            try:
                yield batch.slice(number, 1).to_pylist()[0]
            except UnicodeDecodeError:
                yield None


def typed(value: Any) -> Any:
    """Return a value of a table as JSON would give it, without decimal numbers, times and bytes."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def is_file_name(path: str) -> bool:
    """Return True if the suffix is one of a file of rows, which may be compressed."""
    return _suffix(path) in (*_SUFFIXES, *_JSON_SUFFIXES)


def _suffix(path: str) -> str:
    """Return the suffix that names the format, in lower case: `.csv` for `rows.csv` and `rows.csv.gz`."""
    place = Path(path)
    return (Path(place.stem) if place.suffix.lower() in (".gz", ".xz") else place).suffix.lower()


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError for a key with two values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"two values of {next(key for key in keys if keys.count(key) > 1)!r} in one object")
    return found


def _row(item: Any, where: str, default_id: str, beside: Path | None) -> Row | BadRow:
    if not isinstance(item, dict):
        return BadRow(where, "not a JSON object")
    return Row(where, default_id, item, beside)
