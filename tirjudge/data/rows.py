"""Rows from files: JSON lines, JSON, CSV or Parquet, plain, gzip or xz; bad rows are yielded, not raised."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from tirjudge.storage.json_lines import bounded_lines

RowFormat = Literal["jsonl", "json", "csv", "parquet"]
STANDARD_INPUT = "-"

_SUFFIXES: Mapping[str, RowFormat] = {".csv": "csv", ".parquet": "parquet"}
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_GZIP, _XZ, _PARQUET = b"\x1f\x8b", b"\xfd7zXZ\x00", b"PAR1"
"""The first bytes of a file of each kind."""
_PARQUET_BATCH = 64

_LONGEST_CELL = 2**31 - 1
_PEEKED = 1 << 16

_WRAPPERS = ("data", "rows", "examples", "instances", "items", "records")
"""Keys of a JSON object that may hold the list of all rows."""
_WRAPPED = re.compile(rb'\{\s*"(%s)"\s*:\s*\[' % "|".join(_WRAPPERS).encode())
_LABEL = b'"label"'
_BETWEEN = re.compile(r"[ \t\r\n]*")
_PRETTY = re.compile(rb"\{[ \t]*\r?\n")
"""The start of a pretty-printed object; a JSON line never ends behind its opening brace."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of input, and where it comes from."""

    where: str
    """File and line (for a JSON array, file and item), as messages name it."""
    default_id: str
    """The id of a row that has none of its own: `line-7`, `item-7`."""
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read."""

    where: str
    reason: str


class RowFile:
    """A file of rows, or standard input (`-`). All formats but JSON documents are streamed.

    gzip and xz are decompressed while they are read. Without `format`, the suffix decides (.csv, .parquet,
    also before .gz and .xz), else the first bytes: `[` begins an array, `PAR1` is Parquet, anything else is
    JSON lines. JSON may also be an object whose `data` (or `rows`, `examples`, ...) is the list of rows, and
    pretty-printed objects, one after the other. `notes` says so, in one line each.

    Raises ValueError, in one line, for a file without rows, an unknown format and damaged compression, and
    OSError for a file that cannot be opened.
    """

    def __init__(self, path: str, format: RowFormat | None = None, *, name: str = "") -> None:
        """`name` is the file's name for messages, by default its path."""
        if format is not None and format not in get_args(RowFormat):
            raise ValueError(f"unknown input format {format!r}: use one of {', '.join(get_args(RowFormat))}")
        self.name = name or ("standard input" if path == STANDARD_INPUT else path)
        self._path = path
        self._pipe = _opened_pipe(path, self.name)
        self.notes: list[str] = []
        """Properties of the file that a user may not expect, one line each."""
        self._items: list[Any] | None = None
        self._count: int | None = None
        self._format = format or self._detected_format()
        if self._format == "json" and self._items is None:
            self._items = self._array()

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Read the rows; a pipe can be read only once."""
        if self._items is not None:
            yield from self._from_array(self._items)
            return
        if self._format == "parquet":
            yield from self._from_parquet()
            return
        with self._open() as stream:
            yield from self._from_lines(stream) if self._format == "jsonl" else self._from_table(stream)

    def count(self) -> int | None:
        """Return the number of rows, for which the file is read once.

        It is None for a pipe that has any, which can be read only once.
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
        return self._pipe if self._pipe is not None else open_file(Path(self._path), self.name)

    def _detected_format(self) -> RowFormat:
        if (suffix := _suffix(self._path)) in _SUFFIXES:
            return _SUFFIXES[suffix]
        if self._pipe is not None:
            start = self._pipe.peek(_PEEKED)
        else:
            with self._open() as stream:
                start = stream.read(_PEEKED)
        if start.startswith(_PARQUET):
            return "parquet"
        start = _stripped(start)
        if start.startswith(b"["):
            return "json"
        if _WRAPPED.match(start) or _PRETTY.match(start):
            self._items = self._objects()
        return "jsonl" if self._items is None else "json"

    def _objects(self) -> list[Any] | None:
        """Return the rows of a file of JSON objects that may be pretty-printed; None if it is not one."""
        with self._open() as stream:
            content = stream.read()
        if self._pipe is not None:
            self._pipe = io.BufferedReader(io.BytesIO(content))
        objects = _concatenated(content)
        if objects is None or (len(objects) > 1 and not _PRETTY.match(_stripped(content))):
            return None
        found = self._unwrapped(objects[0]) if len(objects) == 1 else None
        if found is None:
            self.notes.append(f"pretty-printed JSON is read as {_counted(len(objects), 'row')}")
        return objects if found is None else found

    def _unwrapped(self, document: Any) -> list[Any] | None:
        """Return the list of rows that an object wraps; None for anything else."""
        lists = [
            (key, value)
            for key, value in (document.items() if isinstance(document, dict) else ())
            if key in _WRAPPERS and isinstance(value, list) and all(isinstance(item, dict) for item in value)
        ]
        if len(lists) != 1:
            return None
        (key, rows), *_ = lists
        self.notes.append(f"the rows are the list of {len(rows)} under {key!r}")
        return rows

    def _array(self) -> list[Any]:
        with self._open() as stream:
            try:
                items = json.loads(stream.read(), object_pairs_hook=_distinct)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{self.name}: not JSON: {error}") from None
        rows = items if isinstance(items, list) else self._unwrapped(items)
        if rows is None:
            raise ValueError(f"{self.name}: not a JSON array of rows")
        return rows

    def _from_array(self, items: list[Any]) -> Iterator[Row | BadRow]:
        for number, item in enumerate(items, 1):
            yield _row(item, f"{self.name}, item {number}", f"item-{number}")

    def _from_lines(self, stream: BinaryIO) -> Iterator[Row | BadRow]:
        for number, line in enumerate(bounded_lines(stream, self.name), 1):
            if not line.strip():
                continue
            where = f"{self.name}:{number}"
            try:
                text = line.rstrip(b"\r\n").decode("utf-8-sig" if number == 1 else "utf-8")
                # Looking at every key takes time, and the label is the one whose repetition misleads.
                item = json.loads(text, object_pairs_hook=_distinct if line.count(_LABEL) > 1 else None)
            except UnicodeDecodeError as error:
                yield BadRow(where, f"not UTF-8 at byte {error.start + 1}")
            except json.JSONDecodeError as error:
                yield BadRow(where, f"not JSON: {error.msg} at column {error.colno}")
            except (ValueError, RecursionError) as error:
                yield BadRow(where, f"not JSON: {error}")
            else:
                yield _row(item, where, f"line-{number}")

    def _from_parquet(self) -> Iterator[Row]:
        batches = self._parquet().iter_batches(batch_size=_PARQUET_BATCH)
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for number, fields in enumerate(rows, 1):
            yield Row(f"{self.name}, item {number}", f"item-{number}", fields)

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

    def _from_table(self, stream: BinaryIO) -> Iterator[Row | BadRow]:
        with _decoded(stream) as text:
            csv.field_size_limit(_LONGEST_CELL)
            reader = csv.reader(text, strict=True)
            header: list[str] | None = None
            line = 1
            try:
                for cells in reader:
                    if header is None:
                        header = _header(cells, f"{self.name}:{line}")
                    elif cells:
                        yield _table_row(header, cells, f"{self.name}:{line}", f"line-{line}")
                    line = reader.line_num + 1
            except csv.Error as error:
                yield BadRow(f"{self.name}:{line}", f"not CSV, and nothing after it can be read: {error}")


def is_file_name(path: str) -> bool:
    """Return True if the suffix is one of a file of rows, which may be compressed."""
    return _suffix(path) in (*_SUFFIXES, *_JSON_SUFFIXES)


def _suffix(path: str) -> str:
    """Return the suffix that names the format, in lower case: `.csv` for `rows.csv` and `rows.csv.gz`."""
    place = Path(path)
    return (Path(place.stem) if place.suffix.lower() in (".gz", ".xz") else place).suffix.lower()


class _Decompressed(io.RawIOBase):
    """The content of a compressed file, closed with it; reading damaged content raises ValueError."""

    def __init__(self, content: gzip.GzipFile | lzma.LZMAFile, file: io.BufferedReader, name: str) -> None:
        """`content` reads from `file`; `name` is the file's name for messages."""
        self._content, self._file, self._name = content, file, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._content.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
            raise ValueError(f"{self._name}: the compressed data is cut off or damaged ({error})") from None

    def close(self) -> None:
        if not self.closed:
            self._content.close()
            self._file.close()
        super().close()


def open_file(path: Path, name: str = "") -> io.BufferedReader:
    """Open a file for reading, decompressed; `name` is its name for messages.

    Raises OSError, and reading it raises ValueError if it is damaged.
    """
    return _decompressed(path.open("rb"), name or str(path))


def _opened_pipe(path: str, name: str) -> io.BufferedReader | None:
    """Open standard input or a named pipe, which cannot be read twice; None for an ordinary file."""
    if path == STANDARD_INPUT:
        # Not sys.stdin: at exit the interpreter would wait for the thread that still reads from it.
        return _decompressed(open(0, "rb", closefd=False), name)
    return _decompressed(Path(path).open("rb"), name) if Path(path).is_fifo() else None


def _decompressed(file: io.BufferedReader, name: str) -> io.BufferedReader:
    start = file.peek(len(_XZ))
    if start.startswith(_GZIP):
        return io.BufferedReader(_Decompressed(gzip.GzipFile(fileobj=file), file, name))
    if start.startswith(_XZ):
        return io.BufferedReader(_Decompressed(lzma.LZMAFile(file), file, name))
    return file


def _stripped(content: bytes) -> bytes:
    return content.lstrip(b"\xef\xbb\xbf \t\r\n")


def _concatenated(content: bytes) -> list[Any] | None:
    """Return JSON objects that follow each other; None if anything else is among them."""
    decoder, objects, place = json.JSONDecoder(), [], 0
    try:
        text = content.decode("utf-8-sig").strip()
        while place < len(text):
            found, place = decoder.raw_decode(text, place)
            if not isinstance(found, dict):
                return None
            objects.append(found)
            place = _BETWEEN.match(text, place).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError):
        return None
    return objects


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _decoded(stream: BinaryIO) -> io.TextIOWrapper:
    """Decode as UTF-8, with invalid bytes as lone surrogates, so that only their row is rejected."""
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _header(cells: list[str], where: str) -> list[str]:
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        raise ValueError(f"{where}: the header names {twice[0]!r} twice")
    return cells


def _table_row(header: list[str], cells: list[str], where: str, default_id: str) -> Row | BadRow:
    if len(cells) != len(header):
        return BadRow(where, f"{len(cells)} cells under {len(header)} columns")
    if any("\udc80" <= mark <= "\udcff" for cell in cells for mark in cell):
        return BadRow(where, "not UTF-8")
    return Row(where, default_id, dict(zip(header, cells, strict=True)))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError for a key with two values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"two values of {next(key for key in keys if keys.count(key) > 1)!r} in one object")
    return found


def _row(item: Any, where: str, default_id: str) -> Row | BadRow:
    if not isinstance(item, dict):
        return BadRow(where, "not a JSON object")
    return Row(where, default_id, item)
