"""Text for people: escaped and one-line texts, tables for the terminal and in Markdown, counts, durations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

_LONGEST_ESCAPE = len(r"\U0010ffff")
_LONGEST_TEXT = 50_000
_TABLE_COLUMNS = 10_000
"""Width of the virtual terminal for tables: a line is never wrapped, however long a cell is."""


def printable(text: str, limit: int = 400) -> str:
    """Escape untrusted text for the terminal: one line of at most `limit` characters.

    Control characters, and others that print nothing, are shown as escapes.
    """
    shown = "".join(
        # One character more than the limit, to see whether any is cut.
        mark if mark.isprintable() else mark.encode("unicode_escape").decode()
        for mark in text[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def printable_text(text: str) -> str:
    """Escape untrusted text for the terminal, and keep its line breaks; a tab becomes spaces.

    No other control character is left, nor any that prints nothing or changes the direction of writing. Of a
    text that nobody reads to its end, the beginning is shown, and how much is left out.
    """
    if (more := len(text) - _LONGEST_TEXT) > 0:
        return f"{printable_text(text[:_LONGEST_TEXT])}\n[{more:,} more characters, which --json prints]"
    lines = text.replace("\r\n", "\n").expandtabs(4).split("\n")
    return "\n".join(printable(line, len(line) * _LONGEST_ESCAPE + 1) for line in lines)


def one_line(error: BaseException, limit: int = 300) -> str:
    """Return an error's message, or else its type, as one line of at most `limit` characters."""
    line = " ".join(str(error).split()) or type(error).__name__
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an error's message; the name of its class if there is none.

    The other lines of a library's error are usually advice for programmers.
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def table(rows: Sequence[Sequence[str]], *, words: int = 1) -> Iterator[str]:
    """Yield aligned, escaped lines: the first `words` columns to the left, the others (numbers) right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for column in range(len(rows[0]) if rows else 0):
        grid.add_column(justify="left" if column < words else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*(Text(printable(cell, _TABLE_COLUMNS)) for cell in row))
    lines = StringIO()
    Console(file=lines, width=_TABLE_COLUMNS, color_system=None).print(grid)
    yield from (line.rstrip() for line in lines.getvalue().splitlines())


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    for cells in (head, ["---"] * len(head), *rows):
        # A bar inside a cell would split it, also behind a backslash, and a line end would end the row.
        shown = (re.sub(r"(\\*)\|", r"\1\1\\|", printable(cell)) for cell in cells)
        yield f"| {' | '.join(shown)} |"


def counted(number: int, unit: str) -> str:
    """Return a number of things whose name gets an s for all but one: `1 row`, `2 rows`."""
    return f"{number:,} {unit}" if number == 1 else f"{number:,} {unit}s"


def duration(seconds: float) -> str:
    """Format a number of seconds, such as `45 s`, `3 min` or `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def span(least: float, most: float) -> str:
    """Format a range of seconds, such as `2.0 to 3.5 h`; a single duration if both ends read alike."""
    shown = _duration(least), _duration(most)
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return "under 1 min"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"
