"""Published figures, read from one TOML file a paper.

A table has its columns (`benchmark:figure`, one a line; `benchmark:figure @ protocol` where one benchmark has
several), its rows as the paper prints them (`-` for an empty cell), the protocol of each benchmark, and
`otherwise`: rows that stand in the same column under another protocol, and how that is known.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

ANY = "any"
"""The benchmark of figures that a paper prints over all of its benchmarks together."""

_FOLDER = files(__package__)
_EMPTY = "-"
_SHARE = 0.01
"""What one per cent is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One cell of a table."""

    paper: str
    table: str
    model: str
    benchmark: str
    """As the catalogue of benchmarks names it, where it is one."""
    figure: str
    """As the protocol names it, where it is one of ours."""
    protocol: str
    """How it was counted, as far as the paper or arithmetic tells."""
    because: str
    """Why the protocol is not that of the rest of its column; empty where it is."""
    value: float
    """Shares from 0 to 1; other units as printed."""
    unit: str
    """`share`, `count`, `hour`, `dollar` or `item`."""


@cache
def published(benchmark: str = "") -> tuple[Published, ...]:
    """All figures, or those on one benchmark, in the order of papers and tables."""
    found = tuple(_read())
    return tuple(one for one in found if one.benchmark == benchmark) if benchmark else found


def _read() -> Iterator[Published]:
    for file in sorted(_FOLDER.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            paper = tomllib.loads(file.read_text(encoding="utf-8"))
            for table in paper["table"]:
                yield from _cells(paper["paper"], table)


def _cells(paper: str, table: Mapping[str, Any]) -> Iterator[Published]:
    columns = table["columns"].strip().splitlines()
    printed = table.get("unit", "percent")
    for row in table["rows"].strip().splitlines():
        model, _, values = row.partition("|")
        for column, value in zip(columns, values.split(), strict=True):
            if value == _EMPTY:
                continue
            benchmark, _, figure = column.partition(" @ ")[0].partition(":")
            protocol, because = _protocol(table, model.strip(), column)
            yield Published(
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
