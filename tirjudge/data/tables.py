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
"""The line between a header and its rows, as Markdown, psql and sqlcmd draw it."""
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
        best = max(range(len(scored)), key=scored.__getitem__)
        valid, share, _, width = scored[best]
        if width < 2:
            return cls()
        delimiter, quotes = dialects[best]
        return cls(delimiter, quotes, fits=valid and share >= _LEAST_ALIKE)


def _scored(sample: str, delimiter: str, quotes: Quotes, *, whole: bool) -> tuple[bool, float, bool, int]:
    """Return how well a delimiter fits.

    It fits by having no error, by the share of rows with as many cells as the header, by having no quotes
    that seem to be around a cell, and by the header's cells.
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
    if not rows or sum(map(bool, map(_name, rows[0]))) < 2:
        return valid, 0.0, True, min(1, len(rows))
    width, below = len(rows[0]), rows[1:]
    alike = sum(len(cells) >= width and _is_blank(cells[width:]) for cells in below)
    share = alike / len(below) if below else 1.0
    texts = [cell for cells in below for cell in cells]
    bare = not any(map(_SPACED.fullmatch, texts))
    if quotes == "plain":
        # A damaged file of quoted cells is no file without quotes.
        edges = [(text.startswith('"'), text.endswith('"')) for text in texts if len(text) > 1]
        valid = valid and edges.count((True, True)) <= sum(one != other for one, other in edges)
    return valid, share, bare, width


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
    invalid quotes can be read. Raises BadHeader, also for a table that is drawn with lines.
    """
    reader = _reader(stream, dialect.delimiter, dialect.quotes)
    before = 1 if dialect.named and stream.readline() else 0
    columns, line, pieces = list[str](), before + 1, list[tuple[int, list[str]]]()
    first, width = True, 0
    try:
        for cells in reader:
            if columns and first and _is_rule(cells, dialect.delimiter):
                raise BadHeader(line, "a table drawn with lines: export it as CSV, as with psql --csv")
            if not _is_blank(cells):
                first = not columns
                if not columns:
                    columns = _columns(cells, line)
                    width = max((number for number, name in enumerate(columns, 1) if name), default=1)
                else:
                    pieces.append((line, cells))
                    yield from _finished(pieces, columns, width)
            line = before + reader.line_num + 1
    except csv.Error as error:
        yield from (_row(*piece, columns) for piece in pieces)
        yield TableRow(line, {}, f"not CSV, and nothing after it can be read: {error}")
        return
    yield from (_row(*piece, columns) for piece in pieces)


def _finished(pieces: list[tuple[int, list[str]]], columns: Sequence[str], width: int) -> Iterator[TableRow]:
    """Yield the rows that are finished, and take them from `pieces`, which may be pieces of one row."""
    most = 1 if len(pieces[-1][1]) >= width else _MOST_PIECES
    # Each line break outside of quotes cuts one cell into two.
    while (cells := sum(len(cells) - 1 for _, cells in pieces) + 1) > width or len(pieces) > most:
        yield _row(*pieces.pop(0), columns)
    if cells == width:
        for line, piece in pieces:
            fault = f"{len(piece)} cells under {len(columns)} columns: quote texts with line breaks"
            yield TableRow(line, {}, fault) if len(pieces) > 1 else _row(line, piece, columns)
        pieces.clear()


def _is_rule(cells: Sequence[str], delimiter: str) -> bool:
    """Return True for a row of dashes."""
    drawn = all("--" in cell for cell in cells if cell.strip())
    return bool(_RULE.fullmatch("".join(cells))) and (drawn or delimiter == "|")


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
