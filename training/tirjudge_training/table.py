"""Tables as aligned lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(rows: Sequence[Sequence[str]], *, words: int = 1) -> Iterator[str]:
    """Aligned: the first columns, of `words`, to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        aligned = zip(row, widths, range(len(row)), strict=True)
        yield "  ".join(c.ljust(w) if i < words else c.rjust(w) for c, w, i in aligned).rstrip()
