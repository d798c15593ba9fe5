"""Tables of texts: CSV with any usual delimiter, as spreadsheets, databases, R and pandas write it."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tirjudge.storage.json_lines import LONGEST_LINE

if TYPE_CHECKING:
    from _csv import Reader

Quotes = Literal["doubled", "escaped", "spaced", "plain"]
"""The ways to write quotes. `doubled`: a quote inside a cell is written twice. `escaped`: it has a backslash
before it. `spaced`: spaces stand between a delimiter and the quote that opens a cell. `plain`: cells are
never quoted, and a quote is text."""
_FORMS: dict[Quotes, dict[str, Any]] = {
    "doubled": {},
    "escaped": {"escapechar": "\\"},
    "spaced": {"skipinitialspace": True},
    "plain": {"quoting": csv.QUOTE_NONE},
}
"""Options of Python's reader, those of the usual form first."""
DELIMITERS = (",", ";", "\t", "|")
_SPACED = re.compile(r'\s+".*"\s*', re.DOTALL)
"""A cell whose quotes were read as text, because of the space in front of them."""
_RULE = re.compile(r"[\s:+-]*--[\s:+-]*")
"""The line between a header and its rows, as Markdown, psql and sqlcmd write it."""
_COUNTED = re.compile(r"\([0-9]+ rows?( affected)?\)")
"""The last line of such a table."""
_SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n')
"""The first line of a file for Excel that names the delimiter."""
_SAMPLED = 50
"""Number of rows for choosing the delimiter."""
_LONGEST_CELL = LONGEST_LINE
_MOST_COLUMNS = 10_000
_LEAST_ALIKE = 0.5
"""Share of rows with as many cells as the header from which a text is a table."""
_MOST_PIECES = 4
"""Pieces of a row with line breaks outside of quotes that are recognised."""
_INVISIBLE = "\ufeff\u200b\u00a0 \t\r\n"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The form of a table."""

    delimiter: str = ","
    quotes: Quotes = "doubled"
    named: bool = False
    """True if the first line names the delimiter, and is no row."""
    title_rows: int = 0
    """Rows with a single text above the header, blank rows not counted."""
    fits: bool = False
    """True if the header has several columns and most rows as many cells."""

    @classmethod
    def of(cls, sample: str, *, whole: bool) -> Dialect:
        """Return the dialect of a table that begins with a sample; `whole` if nothing follows it.

        It gives the most rows as many cells as the header, and of several it gives the header the most cells.
        """
        if found := _SEPARATOR.match(sample):
            return cls(delimiter=found[1], named=True, fits=True)
        # Texts without quotes have tabs between them: any other delimiter is a part of texts.
        dialects = [
            (delimiter, quotes)
            for quotes in _FORMS
            for delimiter in (DELIMITERS if quotes != "plain" else ("\t",))
        ]
        scored = [_scored(sample, delimiter, quotes, whole=whole) for delimiter, quotes in dialects]
        # The first of equal ones: a comma, and doubled quotes.
        best = max(range(len(scored)), key=lambda number: scored[number][0])
        (valid, share, *_, width), title_rows = scored[best]
        if width < 2:
            return cls()
        delimiter, quotes = dialects[best]
        return cls(delimiter, quotes, title_rows=title_rows, fits=valid and share >= _LEAST_ALIKE)


def _scored(
    sample: str, delimiter: str, quotes: Quotes, *, whole: bool
) -> tuple[tuple[bool, float, bool, bool, int], int]:
    """Return how well a delimiter fits, and the rows above the header.

    It fits by having no error, by the share of rows with as many cells as the header, by having no quotes
    that seem to be around a cell, by having nothing above the header, and by the header's cells.
    """
    records, valid = [], True
    try:
        for cells in islice(_reader(io.StringIO(sample, newline=""), delimiter, quotes), _SAMPLED):
            records.append(cells)
    except csv.Error as error:
        # A sample that ends inside of quotes is no fault.
        valid = not whole and "unexpected end of data" in str(error)
    if not whole and len(records) < _SAMPLED:
        records = records[:-1] or records
    rows = [cells for cells in records if not _is_blank(cells)]
    header = next((n for n, cells in enumerate(rows) if sum(map(bool, map(_name, cells))) > 1), None)
    if header is None:
        return (valid, 0.0, True, True, min(1, len(rows))), 0
    width, below = len(rows[header]), rows[header + 1 :]
    alike = sum(len(cells) >= width and _is_blank(cells[width:]) for cells in below)
    share = alike / len(below) if below else 1.0
    texts = [cell for cells in below for cell in cells]
    bare = not any(map(_SPACED.fullmatch, texts))
    if quotes == "plain":
        # A damaged file of quoted cells is no file without quotes.
        edges = [(text.startswith('"'), text.endswith('"')) for text in texts if len(text) > 1]
        valid = valid and edges.count((True, True)) <= sum(one != other for one, other in edges)
    return (valid, share, bare, not header, width), header


def _reader(stream: Iterable[str], delimiter: str, quotes: Quotes) -> Reader:
    csv.field_size_limit(_LONGEST_CELL)
    return csv.reader(stream, delimiter=delimiter, strict=True, **_FORMS[quotes])


def _is_blank(cells: Sequence[str]) -> bool:
    return not any(cell.strip() for cell in cells)


def _name(cell: str) -> str:
    return cell.strip(_INVISIBLE)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row below the header, or a fault."""

    line: int
    """Number of the row's first line, from 1."""
    fields: dict[str, str | None]
    """Cells by column; None for a cell that the row lacks at its end."""
    fault: str = ""


class BadHeader(ValueError):
    """The header cannot be used; the message says why."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def table_rows(stream: TextIO, dialect: Dialect) -> Iterator[TableRow]:
    """Yield the rows of a table, without blank rows and without columns that have no name.

    A row may lack empty cells at its end. It has a fault if it has texts behind the last column, or if it and
    its neighbours together are one row: if it was written with a line break outside of quotes. Nothing after
    invalid quotes can be read. Raises BadHeader.
    """
    numbered, columns, width = _Numbered(stream, dialect), None, 0
    short: list[tuple[int, list[str]]] = []
    try:
        for line, cells in numbered:
            if columns is None:
                columns = _columns(cells, line)
                width = max(number for number, name in enumerate(columns, 1) if name)
                continue
            if len(cells) < width:
                short.append((line, cells))
                # More rows than a broken row can have pieces.
                if len(short) <= _MOST_PIECES**2:
                    continue
            yield from _completed(short, columns)
            if len(cells) >= width:
                yield _row(line, cells, columns)
            short = []
    except csv.Error as error:
        yield from _completed(short, columns or ())
        yield TableRow(numbered.line, {}, f"not CSV, and nothing after it can be read: {error}")
        return
    yield from _completed(short, columns or ())


class _Numbered:
    """The rows of a table that are not blank, from the header on, with their first lines."""

    def __init__(self, stream: TextIO, dialect: Dialect) -> None:
        self._reader = _reader(stream, dialect.delimiter, dialect.quotes)
        self._stream, self._dialect = stream, dialect
        self.line = 1
        """The first line of the row that is being read."""

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        before, above, behind, ruled = 0, self._dialect.title_rows, 0, False
        if self._dialect.named:
            self._stream.readline()
            before, self.line = 1, 2
        for cells in self._reader:
            if not _is_blank(cells):
                behind += not above
                ruled = ruled or (behind == 2 and self._is_rule(cells))
                if ruled:
                    cells = [cell.strip() for cell in cells]
                passed = ruled and (behind == 2 or _COUNTED.fullmatch("".join(cells)))
                if not (above or passed):
                    yield self.line, cells
                above = max(0, above - 1)
            self.line = before + self._reader.line_num + 1

    def _is_rule(self, cells: Sequence[str]) -> bool:
        """Return True for a row of dashes, which pads the cells of the rows below it too."""
        drawn = all("--" in cell for cell in cells if cell.strip())
        return bool(_RULE.fullmatch("".join(cells))) and (drawn or self._dialect.delimiter == "|")


def _columns(cells: Sequence[str], line: int) -> list[str]:
    """Return the names of the columns; empty for a column without a name. Raises BadHeader."""
    names = [_name(cell) for cell in cells]
    if len(names) > _MOST_COLUMNS:
        raise BadHeader(line, f"the header has {len(names)} columns: at most {_MOST_COLUMNS} are read")
    twice = sorted(name for name, count in Counter(names).items() if name and count > 1)
    if twice:
        raise BadHeader(line, f"the header names {twice[0]!r} twice: rename one of these columns")
    return names


def _row(line: int, cells: Sequence[str], columns: Sequence[str]) -> TableRow:
    if not _is_blank(cells[len(columns) :]):
        return TableRow(line, {}, f"{len(cells)} cells under {len(columns)} columns")
    found = [*cells, *[None] * (len(columns) - len(cells))]
    return TableRow(line, {name: cell for name, cell in zip(columns, found, strict=False) if name})


def _completed(short: Sequence[tuple[int, list[str]]], columns: Sequence[str]) -> Iterator[TableRow]:
    """Yield rows with too few cells that follow each other."""
    width = max((number for number, name in enumerate(columns, 1) if name), default=0)
    counts, broken = [len(cells) for _, cells in short], set[int]()
    for pieces in range(2, _MOST_PIECES + 1):
        for first in range(len(counts) - pieces + 1):
            # Each line break outside of quotes cuts one cell into two.
            if sum(counts[first : first + pieces]) == width + pieces - 1:
                broken.update(range(first, first + pieces))
    for number, (line, cells) in enumerate(short):
        if number in broken:
            fault = f"{len(cells)} cells under {len(columns)} columns: quote texts with line breaks"
            yield TableRow(line, {}, fault)
        else:
            yield _row(line, cells, columns)
