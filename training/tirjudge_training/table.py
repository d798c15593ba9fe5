"""Tables as aligned lines of plain text, for reports that are read in a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import StringIO

WIDTH = 10_000
"""Columns of the virtual terminal: a line is never wrapped, however long a stage's description is."""


def table(rows: Sequence[Sequence[str]], *, words: int = 1) -> Iterator[str]:
    """Yield aligned lines: the first `words` columns to the left, the others (numbers) to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for column in range(len(rows[0]) if rows else 0):
        grid.add_column(justify="left" if column < words else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*map(Text, row))
    lines = StringIO()
    Console(file=lines, width=WIDTH, color_system=None).print(grid)
    yield from (line.rstrip() for line in lines.getvalue().splitlines())
