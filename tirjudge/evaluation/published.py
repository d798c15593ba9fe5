"""Published figures, read from one TOML file per paper.

A table has `columns` (`benchmark:figure`, one per line, with ` @ protocol` if one benchmark has several),
`rows` as printed (`-` for an empty cell), `protocols` by benchmark, and `otherwise`: rows of the same column
that were computed under another protocol, with the reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

ANY = "any"
"""Benchmark name of figures that a paper prints over all of its benchmarks together."""

_FOLDER = files(__package__) / "published"
_EMPTY = "-"
_SHARE = 0.01
"""One per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """One cell of a table."""

    paper: str
    table: str
    model: str
    benchmark: str
    """Name from `benchmark_names()`, or another name for what tirjudge does not run."""
    figure: str
    """Name that the protocol gives the figure, if tirjudge has the protocol."""
    protocol: str
    """Name of the protocol, as stated in the paper or inferred from its numbers."""
    because: str
    """Reason why its protocol differs from the rest of its column; empty if it does not."""
    value: float
    """Shares from 0 to 1; other units as printed."""
    unit: str
    """`share`, `count`, `hour`, `dollar` or `item`."""


def published(benchmark: str = "") -> tuple[PublishedFigure, ...]:
    """Return all figures, or those on one benchmark, in the order of papers and tables."""
    return tuple(one for one in _figures() if one.benchmark == benchmark) if benchmark else _figures()


@cache
def _figures() -> tuple[PublishedFigure, ...]:
    return tuple(_read())


def _read() -> Iterator[PublishedFigure]:
    for file in sorted(_FOLDER.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            paper = tomllib.loads(file.read_text(encoding="utf-8"))
            for table in paper["table"]:
                yield from _cells(paper["paper"], table)


def _cells(paper: str, table: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    columns = table["columns"].strip().splitlines()
    printed = table.get("unit", "percent")
    for row in table["rows"].strip().splitlines():
        model, _, values = row.partition("|")
        for column, value in zip(columns, values.split(), strict=True):
            if value == _EMPTY:
                continue
            benchmark, _, figure = column.partition(" @ ")[0].partition(":")
            protocol, because = _protocol(table, model.strip(), column)
            yield PublishedFigure(
                paper=paper,
                table=table["name"],
                model=model.strip(),
                benchmark=benchmark,
                figure=figure,
                protocol=protocol,
                because=because,
                value=float(value) * (_SHARE if printed == "percent" else 1),
                unit="share" if printed == "percent" else printed,
            )


def _protocol(table: Mapping[str, Any], model: str, column: str) -> tuple[str, str]:
    for other in table.get("otherwise", ()):
        if model in other["models"] and column.startswith(other["column"]):
            return other["protocol"], other["because"]
    named = column.partition(" @ ")[2]
    return named or table["protocols"][column.partition(":")[0]], ""
