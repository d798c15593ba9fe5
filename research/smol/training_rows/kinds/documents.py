"""Kinds of rules about JSON, CSV, XML, tables and lines of keys and values."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from research.smol.training_rows.families.keywords import literal
from research.smol.training_rows.kinds.rules import Parts, Rule, compared, wanted
from research.smol.training_rows.kinds.units import LINES
from research.smol.training_rows.writing import Pen

Given = Mapping[str, Any]

OBJECT = """def obj(t):
    try: d = json.loads(re.sub(r"^```\\w*|```$", "", t.strip()))
    except ValueError: d = {}
    return d if isinstance(d, dict) else {}"""
ARRAY = """def arr(t):
    try: d = json.loads(re.sub(r"^```\\w*|```$", "", t.strip()))
    except ValueError: d = []
    return d if isinstance(d, list) else []"""
CELLS = 'def cells(t): return [l.split(",") for l in t.strip().split("\\n")]'
TABLE = 'def table(t): return [[c.strip() for c in l.strip()[1:-1].split("|")] for l in t.split("\\n") if l.startswith("|")]'
PAIRS = 'def pairs(t): return re.findall(r"^(\\w+): (.+)", t, re.M)'
TAGS = 'def tags(t): return re.findall(r"<(\\w+)>", t)'

KEYS = (
    *("name", "title", "price", "city", "date", "author", "status", "email", "color", "size", "year", "country", "owner"),
    *("rating", "weight", "language", "topic", "summary", "level", "category", "quantity", "unit", "source", "phone", "id"),
)
_LISTS = ("tags", "items", "steps", "colors", "authors", "parts", "options")
_VALUES = ("open", "closed", "draft", "red", "blue", "active", "pending", "daily", "weekly", "small", "large", "beta")
_PARENTS = ("address", "contact", "meta", "details", "location")


def value(key: str, pen: Pen) -> object:
    """Return a value that fits a key."""
    if key in ("price", "rating", "weight", "quantity", "year", "id", "size"):
        return pen.rng.choice([pen.rng.randint(1, 400), round(pen.rng.uniform(1, 90), 1)])
    if key in ("name", "author", "owner"):
        return pen.rng.choice(["Anna Weber", "Tom Reed", "Priya Nair", "Lucy Tran", "Sam Olsen"])
    if key == "date":
        return f"20{pen.rng.randint(10, 29)}-{pen.rng.randint(1, 12):02}-{pen.rng.randint(1, 28):02}"
    if key in ("title", "summary", "topic"):
        return pen.rng.choice([pen.phrase("title"), pen.topic])
    if key in _LISTS:
        return [pen.rng.choice(pen.vocabulary) for _ in range(pen.rng.randint(2, 5))]
    return pen.rng.choice([*_VALUES, pen.rng.choice(pen.vocabulary)])


def _keys(pen: Pen, low: int, high: int) -> list[str]:
    return pen.rng.sample(KEYS, pen.rng.randint(low, high))


def sized(count: str, given: Given) -> str:
    """Return the program's comparison of a count with a number, which nothing at all never passes."""
    return f"{'0 < ' if given['sign'].startswith('<') else ''}{count} {given['sign']} {given['n']}"


def read_json(text: str) -> Any:
    """Return the JSON value of a text, with or without a fence; None if it has none."""
    body = text.strip()
    if body.startswith("```"):
        body = body.partition("\n")[2]
        body = body.removesuffix("```")
    try:
        return json.loads(body)
    except ValueError:
        return None


def _object(text: str, pen: Pen) -> dict[str, Any]:
    found = read_json(text)
    if isinstance(found, dict) and found:
        return found
    return {key: value(key, pen) for key in _keys(pen, 2, 5)}


def _array(text: str, pen: Pen) -> list[Any]:
    found = read_json(text)
    if isinstance(found, list) and found:
        return found
    if pen.chance(0.5):
        return [pen.rng.choice(pen.vocabulary) for _ in range(pen.rng.randint(2, 6))]
    keys = _keys(pen, 2, 3)
    return [{key: value(key, pen) for key in keys} for _ in range(pen.rng.randint(2, 4))]


def _dump(found: object, text: str, pen: Pen) -> str:
    indent = 2 if "\n" in text.strip() else pen.rng.choice([None, 2, 2])
    written = json.dumps(found, ensure_ascii=False, indent=indent)
    return f"```json\n{written}\n```" if text.startswith("```") or pen.chance(0.15) else written


def _malformed(written: str, pen: Pen) -> str:
    return pen.rng.choice([written[:-1].rstrip(), f"Here you are:\n{written}", written.replace('"', "'"), written.replace(":", " =", 1)])


Change = Callable[[Any, Given, Pen], None]


def _json(
    name: str,
    code: Callable[[Given], str],
    check: Callable[[Any, Given], bool],
    good: Change,
    bad: Change,
    draw: Callable[[str, Pen], dict[str, Any]] = lambda text, pen: {},
    *,
    array: bool = False,
) -> Rule:
    base = _array if array else _object

    def follow(text: str, given: Given, pen: Pen) -> str:
        found = base(text, pen)
        good(found, given, pen)
        return _dump(found, text, pen)

    def violate(text: str, given: Given, pen: Pen) -> str:
        found = base(text, pen)
        good(found, given, pen)
        written = _dump(found, text, pen)
        if pen.chance(0.08):
            return _malformed(written, pen)
        bad(found, given, pen)
        return _dump(found, text, pen)

    def holds(text: str, given: Given) -> bool:
        found = read_json(text)
        return isinstance(found, list if array else dict) and check(found, given)

    return Rule(name, "json", Parts(code, holds, follow, violate, draw, (ARRAY if array else OBJECT,)))


def _set(found: dict[str, Any], keys: Sequence[str], pen: Pen) -> None:
    for key in keys:
        found.setdefault(key, value(key, pen))


def _only(found: dict[str, Any], keys: Sequence[str], pen: Pen) -> None:
    for key in list(found):
        if key not in keys:
            del found[key]
    _set(found, keys, pen)


def _resize(found: dict[str, Any], count: int, pen: Pen) -> None:
    while len(found) > count:
        del found[pen.rng.choice(list(found))]
    while len(found) < count:
        _set(found, [pen.rng.choice(KEYS)], pen)


def _misspelt(key: str, pen: Pen) -> str:
    return pen.rng.choice([key.capitalize(), f"{key}s", f"the_{key}", key[:-1]])


def _rename(found: dict[str, Any], key: str, pen: Pen) -> None:
    kept = found.pop(key, "")
    if pen.chance(0.6):
        found[_misspelt(key, pen)] = kept


def _one_key(pen: Pen, keys: Sequence[str] = KEYS) -> dict[str, Any]:
    return {"key": pen.rng.choice(keys)}


def _resized_list(count: Callable[[Given, Pen], int]) -> Change:
    def change(found: dict[str, Any], given: Given, pen: Pen) -> None:
        found[given["key"]] = [pen.rng.choice(pen.vocabulary) for _ in range(count(given, pen))]

    return change


def _resize_array(found: list[Any], count: int, pen: Pen) -> None:
    while len(found) > count:
        found.pop()
    while len(found) < count:
        found.append(
            {key: value(key, pen) for key in found[0]} if found and isinstance(found[0], dict) else pen.rng.choice(pen.vocabulary)
        )


def _as_objects(found: list[Any], given: Given, pen: Pen) -> None:
    for number, one in enumerate(found):
        found[number] = one if isinstance(one, dict) else {pen.rng.choice(KEYS): value("title", pen)}
        found[number].setdefault(given["key"], value(given["key"], pen))


def _drop_from_one(found: list[Any], given: Given, pen: Pen) -> None:
    del pen.rng.choice(found)[given["key"]]


def _texts(found: list[Any], given: Given, pen: Pen) -> None:
    for number, one in enumerate(found):
        if not isinstance(one, str):
            found[number] = pen.rng.choice(pen.vocabulary)


def _reordered(found: dict[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        found[key] = found.pop(key)


def _unsorted(found: dict[str, Any], given: Given, pen: Pen) -> None:
    keys = sorted(found)
    keys[0], keys[-1] = keys[-1], keys[0]
    _reordered(found, keys)


def _stringified(found: dict[str, Any], given: Given, pen: Pen) -> None:
    for key, one in found.items():
        found[key] = one if isinstance(one, str) else str(one)


JSON: tuple[Rule, ...] = (
    _json("json_keys", lambda g: f"all(k in obj(r) for k in {literal(g['keys'])})", lambda d, g: set(g["keys"]) <= d.keys(),
          lambda d, g, pen: _set(d, g["keys"], pen), lambda d, g, pen: _rename(d, pen.rng.choice(g["keys"]), pen),
          lambda text, pen: {"keys": _keys(pen, 2, 4)}),
    _json("json_exact", lambda g: f"sorted(obj(r)) == sorted({literal(g['keys'])})", lambda d, g: set(g["keys"]) == d.keys(),
          lambda d, g, pen: _only(d, g["keys"], pen),
          lambda d, g, pen: _rename(d, pen.rng.choice(g["keys"]), pen) if pen.chance(0.5) else _resize(d, len(d) + 1, pen),
          lambda text, pen: {"keys": _keys(pen, 2, 4)}),
    _json("json_count", lambda g: sized("len(obj(r))", g), lambda d, g: bool(d) and compared(len(d), g),
          lambda d, g, pen: _resize(d, wanted(g, pen, True), pen), lambda d, g, pen: _resize(d, max(1, wanted(g, pen, False)), pen),
          lambda text, pen: {"n": pen.rng.randint(2, 6)}),
    _json("json_no_key", lambda g: f"len(obj(r)) > 0 and {literal(g['key'])} not in obj(r)", lambda d, g: bool(d) and g["key"] not in d,
          lambda d, g, pen: (_set(d, ["notes"], pen), d.pop(g["key"], None)) and None, lambda d, g, pen: _set(d, [g["key"]], pen),
          lambda text, pen: _one_key(pen)),
    _json("json_value", lambda g: f"obj(r).get({literal(g['key'])}) == {literal(g['value'])}", lambda d, g: g["key"] in d and d[g["key"]] == g["value"],
          lambda d, g, pen: d.update({g["key"]: g["value"]}),
          lambda d, g, pen: d.update({g["key"]: pen.rng.choice([g["value"].capitalize(), pen.rng.choice([one for one in _VALUES if one != g["value"]])])}),
          lambda text, pen: {**_one_key(pen, ("status", "color", "size", "category", "level")), "value": pen.rng.choice(_VALUES)}),
    _json("json_number", lambda g: f"isinstance(obj(r).get({literal(g['key'])}), (int, float))", lambda d, g: type(d.get(g["key"])) in (int, float, bool),
          lambda d, g, pen: d.update({g["key"]: value(g["key"], pen)}), lambda d, g, pen: d.update({g["key"]: str(value(g["key"], pen))}),
          lambda text, pen: _one_key(pen, ("price", "rating", "weight", "quantity", "year", "id"))),
    _json("json_bool", lambda g: f"isinstance(obj(r).get({literal(g['key'])}), bool)", lambda d, g: d.get(g["key"]) is True or d.get(g["key"]) is False,
          lambda d, g, pen: d.update({g["key"]: pen.chance(0.5)}), lambda d, g, pen: d.update({g["key"]: pen.rng.choice(["true", "false", "yes", 1, 0])}),
          lambda text, pen: _one_key(pen, ("active", "public", "paid", "done", "available", "archived"))),
    _json("json_list", lambda g: f"isinstance(obj(r).get({literal(g['key'])}), list) and len(obj(r)[{literal(g['key'])}]) {g['sign']} {g['n']}",
          lambda d, g: isinstance(d.get(g["key"]), list) and compared(len(d[g["key"]]), g),
          _resized_list(lambda g, pen: wanted(g, pen, True)), _resized_list(lambda g, pen: wanted(g, pen, False)),
          lambda text, pen: {**_one_key(pen, _LISTS), "n": pen.rng.randint(2, 5)}),
    _json("json_texts", lambda g: "len(obj(r)) > 0 and all(isinstance(v, str) for v in obj(r).values())", lambda d, g: bool(d) and {type(one) for one in d.values()} == {str},
          _stringified, lambda d, g, pen: d.update({pen.rng.choice(list(d)): pen.rng.randint(1, 99)})),
    _json("json_sorted", lambda g: "len(obj(r)) > 1 and list(obj(r)) == sorted(obj(r))",
          lambda d, g: len(d) > 1 and all(a < b for a, b in zip(list(d), list(d)[1:], strict=False)),
          lambda d, g, pen: (_resize(d, max(3, len(d)), pen), _reordered(d, sorted(d))) and None, _unsorted),
    _json("json_nested", lambda g: f"isinstance(obj(r).get({literal(g['key'])}), dict) and {literal(g['inner'])} in obj(r)[{literal(g['key'])}]",
          lambda d, g: isinstance(d.get(g["key"]), dict) and g["inner"] in d[g["key"]],
          lambda d, g, pen: d.update({g["key"]: {g["inner"]: value(g["inner"], pen), pen.rng.choice(_LISTS): "-"}}),
          lambda d, g, pen: d.update({g["key"]: pen.rng.choice([{_misspelt(g["inner"], pen): "x"}, str(value(g["inner"], pen))]), g["inner"]: "-"}),
          lambda text, pen: {**_one_key(pen, _PARENTS), "inner": pen.rng.choice(KEYS)}),
    _json("json_choice", lambda g: f"obj(r).get({literal(g['key'])}) in {literal(g['options'])}", lambda d, g: any(d.get(g["key"]) == one for one in g["options"]),
          lambda d, g, pen: d.update({g["key"]: pen.rng.choice(g["options"])}),
          lambda d, g, pen: d.update({g["key"]: pen.rng.choice([pen.rng.choice(g["options"]).upper(), *(one for one in _VALUES if one not in g["options"])])}),
          lambda text, pen: {**_one_key(pen, ("priority", "status", "size", "state", "kind")), "options": pen.rng.sample(_VALUES, 3)}),
    _json("json_range", lambda g: f"obj(r).get({literal(g['key'])}) in range({g['low']}, {g['high'] + 1})",
          lambda d, g: type(d.get(g["key"])) in (int, float) and d[g["key"]] == int(d[g["key"]]) and g["low"] <= d[g["key"]] <= g["high"],
          lambda d, g, pen: d.update({g["key"]: pen.rng.randint(g["low"], g["high"])}),
          lambda d, g, pen: d.update({g["key"]: pen.rng.choice([g["high"] + 1, g["high"] + 1, g["high"] + 5, str(g["high"])])}),
          lambda text, pen: {**_one_key(pen, ("rating", "score", "stars", "level", "age")), "low": 1, "high": pen.rng.choice([3, 5, 6, 10, 12])}),
    _json("json_array", lambda g: sized("len(arr(r))", g), lambda d, g: bool(d) and compared(len(d), g),
          lambda d, g, pen: _resize_array(d, wanted(g, pen, True), pen), lambda d, g, pen: _resize_array(d, wanted(g, pen, False), pen),
          lambda text, pen: {"n": pen.rng.randint(2, 6)}, array=True),
    _json("json_array_key", lambda g: f"len(arr(r)) > 0 and all({literal(g['key'])} in dict(d) for d in arr(r))",
          lambda d, g: bool(d) and all(isinstance(one, dict) and g["key"] in one for one in d), _as_objects, _drop_from_one,
          lambda text, pen: _one_key(pen), array=True),
    _json("json_array_texts", lambda g: "len(arr(r)) > 0 and all(isinstance(x, str) for x in arr(r))", lambda d, g: {type(one) for one in d} == {str},
          _texts, lambda d, g, pen: d.__setitem__(pen.rng.randrange(len(d)), pen.rng.choice([pen.rng.randint(1, 90), {"text": "x"}, None])), array=True),
)

Rows = list[list[str]]


def _document(
    name: str,
    group: str,
    read: Callable[[str], Any],
    fresh: Callable[[Pen], Any],
    write: Callable[[Any], str],
    uses: tuple[str, ...],
    code: Callable[[Given], str],
    check: Callable[[Any, Given], bool],
    good: Callable[[Any, Given, Pen], Any],
    bad: Callable[[Any, Given, Pen], Any],
    draw: Callable[[str, Pen], dict[str, Any]] = lambda text, pen: {},
    alone: bool = False,
) -> Rule:
    """Return a rule about a document; `alone` if nothing else may stand beside it."""

    def follow(text: str, given: Given, pen: Pen) -> str:
        return write(good(read(text) or fresh(pen), given, pen))

    def violate(text: str, given: Given, pen: Pen) -> str:
        return write(bad(good(read(text) or fresh(pen), given, pen), given, pen))

    def holds(text: str, given: Given) -> bool:
        found = read(text)
        if alone and len(found) != len(LINES.spans(text)):
            return False
        return bool(found) and check(found, given)

    return Rule(name, group, Parts(code, holds, follow, violate, draw, uses))


def _csv_rows(text: str) -> Rows:
    found = list(csv.reader(text.strip().splitlines(), quoting=csv.QUOTE_NONE))
    head = found[0] if found else []
    return found if len(found) > 1 and len(head) > 1 and all(map(str.isidentifier, head)) and all(found) else []


def _fresh_rows(pen: Pen) -> Rows:
    keys = _keys(pen, 2, 4)
    return [keys, *([str(value(key, pen)).replace(",", "") for key in keys] for _ in range(pen.rng.randint(2, 5)))]


def _cell(pen: Pen) -> str:
    return pen.rng.choice([pen.rng.choice(pen.vocabulary), str(pen.rng.randint(1, 99))])


def _with_columns(rows: Rows, count: int, pen: Pen) -> Rows:
    keys = [key for key in KEYS if key not in rows[0]]
    head = [*rows[0], *pen.rng.sample(keys, max(0, count - len(rows[0])))][:count]
    return [head, *([*row, *(_cell(pen) for _ in range(max(0, count - len(row))))][:count] for row in rows[1:])]


def _with_header(rows: Rows, keys: list[str], pen: Pen) -> Rows:
    return [list(keys), *_with_columns(rows, len(keys), pen)[1:]]


def _with_count(rows: Rows, count: int, pen: Pen) -> Rows:
    more = [[_cell(pen) for _ in rows[0]] for _ in range(max(0, count - len(rows) + 1))]
    return [*rows, *more][: count + 1]


def _changed_cell(rows: Rows, pen: Pen, column: int | None, new: str) -> Rows:
    row = pen.rng.randrange(1, len(rows))
    place = pen.rng.randrange(len(rows[row])) if column is None else column
    return [[new if (y, x) == (row, place % len(one)) else cell for x, cell in enumerate(one)] for y, one in enumerate(rows)]


def _other_header(rows: Rows, given: Given, pen: Pen) -> Rows:
    head = list(rows[0])
    at = pen.rng.randrange(len(head))
    if pen.chance(0.4):
        head[at], head[at - 1] = head[at - 1], head[at]
    else:
        head[at] = _misspelt(head[at], pen)
    return [head, *rows[1:]]


def _ragged(rows: Rows, given: Given, pen: Pen) -> Rows:
    if pen.chance(0.4):
        return _with_columns(rows, max(2, given["n"] + pen.rng.choice([-1, 1])), pen) if given["n"] > 2 else _with_columns(rows, 3, pen)
    row = pen.rng.randrange(1, len(rows))
    return [(one[:-1] if pen.chance(0.5) and len(one) > 2 else [*one, _cell(pen)]) if y == row else one for y, one in enumerate(rows)]


def _rows_rule(name: str, table: bool, code: Callable[[Given], str], check: Callable[[Rows, Given], bool],
               good: Callable[[Rows, Given, Pen], Rows], bad: Callable[[Rows, Given, Pen], Rows], draw: Callable[[str, Pen], dict[str, Any]]) -> Rule:
    if table:
        return _document(name, "tables", _table_rows, _fresh_rows, _write_table, (TABLE,), code, check, good, bad, draw)
    return _document(name, "csv", _csv_rows, _fresh_rows, lambda rows: "\n".join(",".join(row) for row in rows), (CELLS,), code, check, good, bad, draw)


def _table_rows(text: str) -> Rows:
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]] if len(rows) > 2 and set("".join(rows[1])) <= set("-: ") else []


def _write_table(rows: Rows) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_CSV_NUMBERS = lambda text, pen: {"n": pen.rng.randint(2, 5)}  # noqa: E731
CSV: tuple[Rule, ...] = (
    _rows_rule("csv_columns", False, lambda g: f"len(cells(r)) > 1 and all(len(c) == {g['n']} for c in cells(r))",
               lambda rows, g: {len(row) for row in rows} == {g["n"]}, lambda rows, g, pen: _with_columns(rows, g["n"], pen), _ragged, _CSV_NUMBERS),
    _rows_rule("csv_header", False, lambda g: f"cells(r)[0] == {literal(g['keys'])}", lambda rows, g: rows[0] == g["keys"],
               lambda rows, g, pen: _with_header(rows, g["keys"], pen), _other_header, lambda text, pen: {"keys": _keys(pen, 2, 4)}),
    _rows_rule("csv_rows", False, lambda g: sized("len(cells(r)) - 1", g), lambda rows, g: compared(len(rows) - 1, g),
               lambda rows, g, pen: _with_count(rows, wanted(g, pen, True), pen), lambda rows, g, pen: _with_count(rows, max(1, wanted(g, pen, False)), pen), _CSV_NUMBERS),
    _rows_rule("csv_full", False, lambda g: "len(cells(r)) > 1 and all(c.strip() for row in cells(r) for c in row)",
               lambda rows, g: "" not in {cell.strip() for row in rows for cell in row},
               lambda rows, g, pen: [[cell or _cell(pen) for cell in row] for row in rows], lambda rows, g, pen: _changed_cell(rows, pen, None, pen.rng.choice(["", " "])), lambda text, pen: {}),
    _rows_rule("csv_numbers", False, lambda g: "len(cells(r)) > 1 and all(c[-1].strip().isdigit() for c in cells(r)[1:])",
               lambda rows, g: all(re.fullmatch(r"\d+", row[-1].strip()) for row in rows[1:]),
               lambda rows, g, pen: [rows[0], *([*row[:-1], row[-1] if row[-1].isdigit() else str(pen.rng.randint(1, 99))] for row in rows[1:])],
               lambda rows, g, pen: _changed_cell(rows, pen, -1, pen.rng.choice(["many", "n/a", "12 kg", "-", "3.5"])), lambda text, pen: {}),
    _rows_rule("csv_first", False, lambda g: f"len(cells(r)) > 1 and all(c[0][:1].isupper() for c in cells(r)[1:])",
               lambda rows, g: all(row[0][:1] != row[0][:1].lower() for row in rows[1:]),
               lambda rows, g, pen: [rows[0], *([row[0].capitalize() if row[0][:1].isalpha() else pen.rng.choice(pen.vocabulary).capitalize(), *row[1:]] for row in rows[1:])],
               lambda rows, g, pen: _changed_cell(rows, pen, 0, pen.rng.choice(pen.vocabulary)), lambda text, pen: {}),
)
TABLES: tuple[Rule, ...] = (
    _rows_rule("table_columns", True, lambda g: f"len(table(r)) > 2 and all(len(c) == {g['n']} for c in table(r))",
               lambda rows, g: {len(row) for row in rows} == {g["n"]}, lambda rows, g, pen: _with_columns(rows, g["n"], pen), _ragged, _CSV_NUMBERS),
    _rows_rule("table_header", True, lambda g: f"table(r)[:1] == [{literal(g['keys'])}]", lambda rows, g: rows[0] == g["keys"],
               lambda rows, g, pen: _with_header(rows, g["keys"], pen), _other_header, lambda text, pen: {"keys": [key.capitalize() for key in _keys(pen, 2, 4)]}),
    _rows_rule("table_rows", True, lambda g: sized("len(table(r)) - 2", g), lambda rows, g: compared(len(rows) - 1, g),
               lambda rows, g, pen: _with_count(rows, wanted(g, pen, True), pen), lambda rows, g, pen: _with_count(rows, max(1, wanted(g, pen, False)), pen), _CSV_NUMBERS),
    _rows_rule("table_full", True, lambda g: "len(table(r)) > 2 and all(c for row in table(r) for c in row)",
               lambda rows, g: all(map(all, rows)), lambda rows, g, pen: [[cell or _cell(pen) for cell in row] for row in rows],
               lambda rows, g, pen: _changed_cell(rows, pen, None, ""), lambda text, pen: {}),
)

Pairs = list[tuple[str, str]]


def _read_pairs(text: str) -> Pairs:
    lines = [line for line in text.splitlines() if line.strip()]
    found = [line.partition(": ") for line in lines]
    good = [(key, one) for key, mark, one in found if mark and re.fullmatch(r"\w+", key) and one]
    return good if len(good) > 1 else []


def _fresh_pairs(pen: Pen) -> Pairs:
    return [(key, str(value(key, pen))) for key in _keys(pen, 3, 5)]


def _write_pairs(pairs: Pairs) -> str:
    return "\n".join(f"{key}: {one}" if key else one for key, one in pairs)


def _with_keys(pairs: Pairs, keys: Sequence[str], pen: Pen) -> Pairs:
    known = dict(pairs)
    return [*pairs, *((key, str(value(key, pen))) for key in keys if key not in known)]


def _pairs_rule(name: str, code: Callable[[Given], str], check: Callable[[Pairs, Given], bool], good: Callable[[Pairs, Given, Pen], Pairs],
                bad: Callable[[Pairs, Given, Pen], Pairs], draw: Callable[[str, Pen], dict[str, Any]], *more: str) -> Rule:
    return _document(name, "yaml", _read_pairs, _fresh_pairs, _write_pairs, (PAIRS, *more), code, check, good, bad, draw, alone=bool(more))


def _without_key(pairs: Pairs, given: Given, pen: Pen) -> Pairs:
    key = pen.rng.choice(given["keys"])
    return [(_misspelt(one, pen) if pen.chance(0.5) else "notes", text) if one == key else (one, text) for one, text in pairs]


def _sized(pairs: Pairs, count: int, pen: Pen) -> Pairs:
    return _with_keys(pairs, pen.rng.sample(KEYS, len(KEYS)), pen)[:count]


def _swapped(pairs: Pairs, given: Given, pen: Pen) -> Pairs:
    at = pen.rng.randrange(1, len(pairs))
    changed = list(pairs)
    if pen.chance(0.7):
        changed[at], changed[at - 1] = changed[at - 1], changed[at]
    else:
        changed.insert(at, (pen.rng.choice([key for key in KEYS if key not in dict(pairs)]), "x"))
    return changed


def _revalued(pairs: Pairs, key: str, new: str) -> Pairs:
    return [*((one, text) for one, text in pairs if one != key), (key, new)]


YAML: tuple[Rule, ...] = (
    _pairs_rule("yaml_keys", lambda g: f"all(k in dict(pairs(r)) for k in {literal(g['keys'])})", lambda pairs, g: set(g["keys"]) <= {key for key, _ in pairs},
                lambda pairs, g, pen: _with_keys(pairs, g["keys"], pen), _without_key, lambda text, pen: {"keys": _keys(pen, 2, 4)}),
    _pairs_rule("yaml_order", lambda g: f"[k for k, v in pairs(r)] == {literal(g['keys'])}", lambda pairs, g: [key for key, _ in pairs] == g["keys"],
                lambda pairs, g, pen: [(key, dict(pairs).get(key) or str(value(key, pen))) for key in g["keys"]], _swapped, lambda text, pen: {"keys": _keys(pen, 2, 4)}),
    _pairs_rule("yaml_count", lambda g: sized("len(pairs(r))", g), lambda pairs, g: compared(len(pairs), g),
                lambda pairs, g, pen: _sized(pairs, wanted(g, pen, True), pen), lambda pairs, g, pen: _sized(pairs, max(2, wanted(g, pen, False)), pen), lambda text, pen: {"n": pen.rng.randint(3, 6)}),
    _pairs_rule("yaml_value", lambda g: f"dict(pairs(r)).get({literal(g['key'])}) == {literal(g['value'])}", lambda pairs, g: dict(pairs).get(g["key"], "") == g["value"],
                lambda pairs, g, pen: _revalued(pairs, g["key"], g["value"]), lambda pairs, g, pen: _revalued(pairs, g["key"], pen.rng.choice([one for one in _VALUES if one != g["value"]])),
                lambda text, pen: {**_one_key(pen, ("status", "color", "size", "category", "level")), "value": pen.rng.choice(_VALUES)}),
    _pairs_rule("yaml_only", lambda g: "len(pairs(r)) > 1 and len(pairs(r)) == len(lines(r))", lambda pairs, g: True,
                lambda pairs, g, pen: list(pairs), lambda pairs, g, pen: [*pairs, ("", pen.sentence().replace(": ", " "))] if pen.chance(0.6) else [("", "Here it is"), *pairs],
                lambda text, pen: {}, LINES.definition),
)


def _xml(text: str) -> ElementTree.Element | None:
    if not text.lstrip().startswith("<"):
        return None
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None


def _fresh_xml(pen: Pen) -> ElementTree.Element:
    root = ElementTree.Element(pen.rng.choice(["note", "entry", "record", "card"]))
    for key in _keys(pen, 2, 4):
        ElementTree.SubElement(root, key).text = str(value(key, pen))
    return root


def _write_xml(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _xml_rule(name: str, code: Callable[[Given], str], check: Callable[[ElementTree.Element, Given], bool],
              good: Callable[[ElementTree.Element, Given, Pen], None], bad: Callable[[ElementTree.Element, Given, Pen], None],
              draw: Callable[[str, Pen], dict[str, Any]]) -> Rule:
    def follow(text: str, given: Given, pen: Pen) -> str:
        root = _xml(text)
        root = _fresh_xml(pen) if root is None else root
        good(root, given, pen)
        return _write_xml(root)

    def violate(text: str, given: Given, pen: Pen) -> str:
        root = _xml(follow(text, given, pen))
        assert root is not None
        bad(root, given, pen)
        return _write_xml(root)

    def holds(text: str, given: Given) -> bool:
        root = _xml(text)
        return root is not None and check(root, given)

    return Rule(name, "xml", Parts(code, holds, follow, violate, draw, (TAGS,)))


def _child(root: ElementTree.Element, tag: str, pen: Pen) -> None:
    ElementTree.SubElement(root, tag).text = str(value(tag, pen))


def _with_children(root: ElementTree.Element, given: Given, pen: Pen) -> None:
    for tag in given["keys"]:
        if root.find(tag) is None:
            _child(root, tag, pen)


def _renamed_child(root: ElementTree.Element, given: Given, pen: Pen) -> None:
    for one in root.findall(pen.rng.choice(given["keys"])):
        one.tag = _misspelt(one.tag, pen)


def _with_copies(count: Callable[[Given, Pen], int]) -> Callable[[ElementTree.Element, Given, Pen], None]:
    def change(root: ElementTree.Element, given: Given, pen: Pen) -> None:
        for one in root.findall(given["tag"]):
            root.remove(one)
        for _ in range(count(given, pen)):
            _child(root, given["tag"], pen)

    return change


def _renamed_root(root: ElementTree.Element, tag: str) -> None:
    root.tag = tag


_ROOTS = ("note", "entry", "record", "card", "report", "order", "item")
XML: tuple[Rule, ...] = (
    _xml_rule("xml_root", lambda g: f"tags(r)[:1] == [{literal(g['tag'])}] and r.strip().endswith({literal('</' + g['tag'] + '>')})", lambda root, g: root.tag == g["tag"],
              lambda root, g, pen: _renamed_root(root, g["tag"]), lambda root, g, pen: _renamed_root(root, pen.rng.choice([one for one in (*_ROOTS, g["tag"] + "s") if one != g["tag"]])),
              lambda text, pen: {"tag": pen.rng.choice(_ROOTS)}),
    _xml_rule("xml_tags", lambda g: f"all(x in tags(r) for x in {literal(g['keys'])})", lambda root, g: all(any(one.tag == tag for one in root.iter()) for tag in g["keys"]),
              _with_children, _renamed_child, lambda text, pen: {"keys": _keys(pen, 2, 4)}),
    _xml_rule("xml_count", lambda g: sized(f"tags(r).count({literal(g['tag'])})", g), lambda root, g: 0 < (found := len(list(root.iter(g["tag"])))) and compared(found, g),
              _with_copies(lambda g, pen: wanted(g, pen, True)), _with_copies(lambda g, pen: wanted(g, pen, False)),
              lambda text, pen: {"tag": pen.rng.choice(["step", "entry", "author", "line", "option"]), "n": pen.rng.randint(2, 5)}),
    _xml_rule("xml_children", lambda g: sized("len(tags(r)) - 1", g), lambda root, g: len(root) > 0 and compared(len(list(root.iter())) - 1, g),
              lambda root, g, pen: _xml_sized(root, wanted(g, pen, True), pen), lambda root, g, pen: _xml_sized(root, wanted(g, pen, False), pen),
              lambda text, pen: {"n": pen.rng.randint(2, 5)}),
)


def _xml_sized(root: ElementTree.Element, count: int, pen: Pen) -> None:
    for one in list(root)[count:]:
        root.remove(one)
    while len(root) < count:
        _child(root, pen.rng.choice(KEYS), pen)


DOCUMENTS: Mapping[str, tuple[Rule, ...]] = {"json": JSON, "csv": CSV, "tables": TABLES, "yaml": YAML, "xml": XML}
"""Rules by the kind of document, which only go together with rules of the same kind."""
