"""Kinds of rules about CSV and Markdown tables."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from typing import Any

from research.smol.training_rows.families.keywords import literal
from research.smol.training_rows.kinds.rules.base import (
    Given,
    Rule,
    compared,
    wanted,
)
from research.smol.training_rows.kinds.rules.documents import (
    KEYS,
    document_rule,
    draw_keys,
    misspelt,
    sized,
    value,
)
from research.smol.training_rows.writing import Pen

CELLS = 'def cells(t): return [l.split(",") for l in t.strip().split("\\n")]'
TABLE = (
    'def table(t): return [[c.strip() for c in l.strip()[1:-1].split("|")] '
    'for l in t.split("\\n") if l.startswith("|")]'
)
Rows = list[list[str]]


def _csv_rows(text: str) -> Rows:
    found = list(csv.reader(text.strip().splitlines(), quoting=csv.QUOTE_NONE))
    head = found[0] if found else []
    return (
        found if len(found) > 1 and len(head) > 1 and all(map(str.isidentifier, head)) and all(found) else []
    )


def _fresh_rows(pen: Pen) -> Rows:
    keys = draw_keys(pen, 2, 4)
    return [
        keys,
        *([str(value(key, pen)).replace(",", "") for key in keys] for _ in range(pen.rng.randint(2, 5))),
    ]


def _cell(pen: Pen) -> str:
    return pen.rng.choice([pen.word(), str(pen.rng.randint(1, 99))])


def _with_columns(rows: Rows, count: int, pen: Pen) -> Rows:
    keys = [key for key in KEYS if key not in rows[0]]
    head = [*rows[0], *pen.rng.sample(keys, max(0, count - len(rows[0])))][:count]
    return [
        head,
        *([*row, *(_cell(pen) for _ in range(max(0, count - len(row))))][:count] for row in rows[1:]),
    ]


def _with_header(rows: Rows, keys: list[str], pen: Pen) -> Rows:
    return [list(keys), *_with_columns(rows, len(keys), pen)[1:]]


def _with_count(rows: Rows, count: int, pen: Pen) -> Rows:
    more = [[_cell(pen) for _ in rows[0]] for _ in range(max(0, count - len(rows) + 1))]
    return [*rows, *more][: count + 1]


def _changed_cell(rows: Rows, pen: Pen, column: int | None, new: str) -> Rows:
    row = pen.rng.randrange(1, len(rows))
    place = pen.rng.randrange(len(rows[row])) if column is None else column
    return [
        [new if (y, x) == (row, place % len(one)) else cell for x, cell in enumerate(one)]
        for y, one in enumerate(rows)
    ]


def _other_header(rows: Rows, given: Given, pen: Pen) -> Rows:
    head = list(rows[0])
    at = pen.rng.randrange(len(head))
    if pen.chance(0.4):
        head[at], head[at - 1] = head[at - 1], head[at]
    else:
        head[at] = misspelt(head[at], pen)
    return [head, *rows[1:]]


def _ragged(rows: Rows, given: Given, pen: Pen) -> Rows:
    if pen.chance(0.4):
        return (
            _with_columns(rows, max(2, given["n"] + pen.rng.choice([-1, 1])), pen)
            if given["n"] > 2
            else _with_columns(rows, 3, pen)
        )
    row = pen.rng.randrange(1, len(rows))
    return [
        (one[:-1] if pen.chance(0.5) and len(one) > 2 else [*one, _cell(pen)]) if y == row else one
        for y, one in enumerate(rows)
    ]


def _rows_rule(
    name: str,
    table: bool,
    code: Callable[[Given], str],
    check: Callable[[Rows, Given], bool],
    good: Callable[[Rows, Given, Pen], Rows],
    bad: Callable[[Rows, Given, Pen], Rows],
    draw: Callable[[str, Pen], dict[str, Any]],
) -> Rule:
    if table:
        return document_rule(
            name, "tables", _table_rows, _fresh_rows, _write_table, (TABLE,), code, check, good, bad, draw
        )
    return document_rule(
        name,
        "csv",
        _csv_rows,
        _fresh_rows,
        lambda rows: "\n".join(",".join(row) for row in rows),
        (CELLS,),
        code,
        check,
        good,
        bad,
        draw,
    )


def _table_rows(text: str) -> Rows:
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]] if len(rows) > 2 and set("".join(rows[1])) <= set("-: ") else []


def _write_table(rows: Rows) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_CSV_NUMBERS = lambda text, pen: {"n": pen.rng.randint(2, 5)}  # noqa: E731
CSV: tuple[Rule, ...] = (
    _rows_rule(
        "csv_columns",
        False,
        lambda g: f"len(cells(r)) > 1 and all(len(c) == {g['n']} for c in cells(r))",
        lambda rows, g: {len(row) for row in rows} == {g["n"]},
        lambda rows, g, pen: _with_columns(rows, g["n"], pen),
        _ragged,
        _CSV_NUMBERS,
    ),
    _rows_rule(
        "csv_header",
        False,
        lambda g: f"cells(r)[0] == {literal(g['keys'])}",
        lambda rows, g: rows[0] == g["keys"],
        lambda rows, g, pen: _with_header(rows, g["keys"], pen),
        _other_header,
        lambda text, pen: {"keys": draw_keys(pen, 2, 4)},
    ),
    _rows_rule(
        "csv_rows",
        False,
        lambda g: sized("len(cells(r)) - 1", g),
        lambda rows, g: compared(len(rows) - 1, g),
        lambda rows, g, pen: _with_count(rows, wanted(g, pen, True), pen),
        lambda rows, g, pen: _with_count(rows, max(1, wanted(g, pen, False)), pen),
        _CSV_NUMBERS,
    ),
    _rows_rule(
        "csv_full",
        False,
        lambda g: "len(cells(r)) > 1 and all(c.strip() for row in cells(r) for c in row)",
        lambda rows, g: "" not in {cell.strip() for row in rows for cell in row},
        lambda rows, g, pen: [[cell or _cell(pen) for cell in row] for row in rows],
        lambda rows, g, pen: _changed_cell(rows, pen, None, pen.rng.choice(["", " "])),
        lambda text, pen: {},
    ),
    _rows_rule(
        "csv_numbers",
        False,
        lambda g: "len(cells(r)) > 1 and all(c[-1].strip().isdigit() for c in cells(r)[1:])",
        lambda rows, g: all(re.fullmatch(r"\d+", row[-1].strip()) for row in rows[1:]),
        lambda rows, g, pen: [
            rows[0],
            *([*row[:-1], row[-1] if row[-1].isdigit() else str(pen.rng.randint(1, 99))] for row in rows[1:]),
        ],
        lambda rows, g, pen: _changed_cell(
            rows, pen, -1, pen.rng.choice(["many", "n/a", "12 kg", "-", "3.5"])
        ),
        lambda text, pen: {},
    ),
    _rows_rule(
        "csv_first",
        False,
        lambda g: "len(cells(r)) > 1 and all(c[0][:1].isupper() for c in cells(r)[1:])",
        lambda rows, g: all(row[0][:1] != row[0][:1].lower() for row in rows[1:]),
        lambda rows, g, pen: [
            rows[0],
            *(
                [
                    row[0].capitalize() if row[0][:1].isalpha() else pen.word().capitalize(),
                    *row[1:],
                ]
                for row in rows[1:]
            ),
        ],
        lambda rows, g, pen: _changed_cell(rows, pen, 0, pen.word()),
        lambda text, pen: {},
    ),
)
TABLES: tuple[Rule, ...] = (
    _rows_rule(
        "table_columns",
        True,
        lambda g: f"len(table(r)) > 2 and all(len(c) == {g['n']} for c in table(r))",
        lambda rows, g: {len(row) for row in rows} == {g["n"]},
        lambda rows, g, pen: _with_columns(rows, g["n"], pen),
        _ragged,
        _CSV_NUMBERS,
    ),
    _rows_rule(
        "table_header",
        True,
        lambda g: f"table(r)[:1] == [{literal(g['keys'])}]",
        lambda rows, g: rows[0] == g["keys"],
        lambda rows, g, pen: _with_header(rows, g["keys"], pen),
        _other_header,
        lambda text, pen: {"keys": [key.capitalize() for key in draw_keys(pen, 2, 4)]},
    ),
    _rows_rule(
        "table_rows",
        True,
        lambda g: sized("len(table(r)) - 2", g),
        lambda rows, g: compared(len(rows) - 1, g),
        lambda rows, g, pen: _with_count(rows, wanted(g, pen, True), pen),
        lambda rows, g, pen: _with_count(rows, max(1, wanted(g, pen, False)), pen),
        _CSV_NUMBERS,
    ),
    _rows_rule(
        "table_full",
        True,
        lambda g: "len(table(r)) > 2 and all(c for row in table(r) for c in row)",
        lambda rows, g: all(map(all, rows)),
        lambda rows, g, pen: [[cell or _cell(pen) for cell in row] for row in rows],
        lambda rows, g, pen: _changed_cell(rows, pen, None, ""),
        lambda text, pen: {},
    ),
)
