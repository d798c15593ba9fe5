"""Kinds of rules about JSON objects and arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from research.smol.training_rows.families.keywords import literal
from research.smol.training_rows.kinds.rules.base import (
    Given,
    Parts,
    Rule,
    compared,
    wanted,
)
from research.smol.training_rows.kinds.rules.documents import (
    KEYS,
    LISTS,
    VALUES,
    draw_keys,
    misspelt,
    one_key,
    sized,
    value,
)
from research.smol.training_rows.writing import Pen

OBJECT = """def obj(t):
    try: d = json.loads(re.sub(r"^```\\w*|```$", "", t.strip()))
    except ValueError: d = {}
    return d if isinstance(d, dict) else {}"""
ARRAY = """def arr(t):
    try: d = json.loads(re.sub(r"^```\\w*|```$", "", t.strip()))
    except ValueError: d = []
    return d if isinstance(d, list) else []"""
_PARENTS = ("address", "contact", "meta", "details", "location")


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
    return {key: value(key, pen) for key in draw_keys(pen, 2, 5)}


def _array(text: str, pen: Pen) -> list[Any]:
    found = read_json(text)
    if isinstance(found, list) and found:
        return found
    if pen.chance(0.5):
        return [pen.word() for _ in range(pen.rng.randint(2, 6))]
    keys = draw_keys(pen, 2, 3)
    return [{key: value(key, pen) for key in keys} for _ in range(pen.rng.randint(2, 4))]


def _dump(found: object, text: str, pen: Pen) -> str:
    indent = 2 if "\n" in text.strip() else pen.rng.choice([None, 2, 2])
    written = json.dumps(found, ensure_ascii=False, indent=indent)
    return f"```json\n{written}\n```" if text.startswith("```") or pen.chance(0.15) else written


def _malformed(written: str, pen: Pen) -> str:
    return pen.rng.choice(
        [
            written[:-1].rstrip(),
            f"Here you are:\n{written}",
            written.replace('"', "'"),
            written.replace(":", " =", 1),
        ]
    )


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


def _rename(found: dict[str, Any], key: str, pen: Pen) -> None:
    kept = found.pop(key, "")
    if pen.chance(0.6):
        found[misspelt(key, pen)] = kept


def _resized_list(count: Callable[[Given, Pen], int]) -> Change:
    def change(found: dict[str, Any], given: Given, pen: Pen) -> None:
        found[given["key"]] = [pen.word() for _ in range(count(given, pen))]

    return change


def _resize_array(found: list[Any], count: int, pen: Pen) -> None:
    while len(found) > count:
        found.pop()
    while len(found) < count:
        found.append(
            {key: value(key, pen) for key in found[0]} if found and isinstance(found[0], dict) else pen.word()
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
            found[number] = pen.word()


def _reordered(found: dict[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        found[key] = found.pop(key)


def _sorted(found: dict[str, Any], given: Given, pen: Pen) -> None:
    _resize(found, max(3, len(found)), pen)
    _reordered(found, sorted(found))


def _without_key(found: dict[str, Any], given: Given, pen: Pen) -> None:
    _set(found, ["notes"], pen)
    found.pop(given["key"], None)


def _unsorted(found: dict[str, Any], given: Given, pen: Pen) -> None:
    keys = sorted(found)
    keys[0], keys[-1] = keys[-1], keys[0]
    _reordered(found, keys)


def _stringified(found: dict[str, Any], given: Given, pen: Pen) -> None:
    for key, one in found.items():
        found[key] = one if isinstance(one, str) else str(one)


JSON: tuple[Rule, ...] = (
    _json(
        "json_keys",
        lambda g: f"all(k in obj(r) for k in {literal(g['keys'])})",
        lambda d, g: set(g["keys"]) <= d.keys(),
        lambda d, g, pen: _set(d, g["keys"], pen),
        lambda d, g, pen: _rename(d, pen.rng.choice(g["keys"]), pen),
        lambda text, pen: {"keys": draw_keys(pen, 2, 4)},
    ),
    _json(
        "json_exact",
        lambda g: f"sorted(obj(r)) == sorted({literal(g['keys'])})",
        lambda d, g: set(g["keys"]) == d.keys(),
        lambda d, g, pen: _only(d, g["keys"], pen),
        lambda d, g, pen: (
            _rename(d, pen.rng.choice(g["keys"]), pen) if pen.chance(0.5) else _resize(d, len(d) + 1, pen)
        ),
        lambda text, pen: {"keys": draw_keys(pen, 2, 4)},
    ),
    _json(
        "json_count",
        lambda g: sized("len(obj(r))", g),
        lambda d, g: bool(d) and compared(len(d), g),
        lambda d, g, pen: _resize(d, wanted(g, pen, True), pen),
        lambda d, g, pen: _resize(d, max(1, wanted(g, pen, False)), pen),
        lambda text, pen: {"n": pen.rng.randint(2, 6)},
    ),
    _json(
        "json_no_key",
        lambda g: f"len(obj(r)) > 0 and {literal(g['key'])} not in obj(r)",
        lambda d, g: bool(d) and g["key"] not in d,
        _without_key,
        lambda d, g, pen: _set(d, [g["key"]], pen),
        lambda text, pen: one_key(pen),
    ),
    _json(
        "json_value",
        lambda g: f"obj(r).get({literal(g['key'])}) == {literal(g['value'])}",
        lambda d, g: g["key"] in d and d[g["key"]] == g["value"],
        lambda d, g, pen: d.update({g["key"]: g["value"]}),
        lambda d, g, pen: d.update(
            {
                g["key"]: pen.rng.choice(
                    [g["value"].capitalize(), pen.rng.choice([one for one in VALUES if one != g["value"]])]
                )
            }
        ),
        lambda text, pen: {
            **one_key(pen, ("status", "color", "size", "category", "level")),
            "value": pen.rng.choice(VALUES),
        },
    ),
    _json(
        "json_number",
        lambda g: f"isinstance(obj(r).get({literal(g['key'])}), (int, float))",
        lambda d, g: type(d.get(g["key"])) in (int, float, bool),
        lambda d, g, pen: d.update({g["key"]: value(g["key"], pen)}),
        lambda d, g, pen: d.update({g["key"]: str(value(g["key"], pen))}),
        lambda text, pen: one_key(pen, ("price", "rating", "weight", "quantity", "year", "id")),
    ),
    _json(
        "json_bool",
        lambda g: f"isinstance(obj(r).get({literal(g['key'])}), bool)",
        lambda d, g: d.get(g["key"]) is True or d.get(g["key"]) is False,
        lambda d, g, pen: d.update({g["key"]: pen.chance(0.5)}),
        lambda d, g, pen: d.update({g["key"]: pen.rng.choice(["true", "false", "yes", 1, 0])}),
        lambda text, pen: one_key(pen, ("active", "public", "paid", "done", "available", "archived")),
    ),
    _json(
        "json_list",
        lambda g: (
            f"isinstance(obj(r).get({literal(g['key'])}), list) "
            f"and len(obj(r)[{literal(g['key'])}]) {g['sign']} {g['n']}"
        ),
        lambda d, g: isinstance(d.get(g["key"]), list) and compared(len(d[g["key"]]), g),
        _resized_list(lambda g, pen: wanted(g, pen, True)),
        _resized_list(lambda g, pen: wanted(g, pen, False)),
        lambda text, pen: {**one_key(pen, LISTS), "n": pen.rng.randint(2, 5)},
    ),
    _json(
        "json_texts",
        lambda g: "len(obj(r)) > 0 and all(isinstance(v, str) for v in obj(r).values())",
        lambda d, g: bool(d) and {type(one) for one in d.values()} == {str},
        _stringified,
        lambda d, g, pen: d.update({pen.rng.choice(list(d)): pen.rng.randint(1, 99)}),
    ),
    _json(
        "json_sorted",
        lambda g: "len(obj(r)) > 1 and list(obj(r)) == sorted(obj(r))",
        lambda d, g: len(d) > 1 and all(a < b for a, b in pairwise(d)),
        _sorted,
        _unsorted,
    ),
    _json(
        "json_nested",
        lambda g: (
            f"isinstance(obj(r).get({literal(g['key'])}), dict) "
            f"and {literal(g['inner'])} in obj(r)[{literal(g['key'])}]"
        ),
        lambda d, g: isinstance(d.get(g["key"]), dict) and g["inner"] in d[g["key"]],
        lambda d, g, pen: d.update(
            {g["key"]: {g["inner"]: value(g["inner"], pen), pen.rng.choice(LISTS): "-"}}
        ),
        lambda d, g, pen: d.update(
            {
                g["key"]: pen.rng.choice([{misspelt(g["inner"], pen): "x"}, str(value(g["inner"], pen))]),
                g["inner"]: "-",
            }
        ),
        lambda text, pen: {**one_key(pen, _PARENTS), "inner": pen.rng.choice(KEYS)},
    ),
    _json(
        "json_choice",
        lambda g: f"obj(r).get({literal(g['key'])}) in {literal(g['options'])}",
        lambda d, g: any(d.get(g["key"]) == one for one in g["options"]),
        lambda d, g, pen: d.update({g["key"]: pen.rng.choice(g["options"])}),
        lambda d, g, pen: d.update(
            {
                g["key"]: pen.rng.choice(
                    [
                        pen.rng.choice(g["options"]).upper(),
                        *(one for one in VALUES if one not in g["options"]),
                    ]
                )
            }
        ),
        lambda text, pen: {
            **one_key(pen, ("priority", "status", "size", "state", "kind")),
            "options": pen.rng.sample(VALUES, 3),
        },
    ),
    _json(
        "json_range",
        lambda g: f"obj(r).get({literal(g['key'])}) in range({g['low']}, {g['high'] + 1})",
        lambda d, g: (
            type(d.get(g["key"])) in (int, float)
            and d[g["key"]] == int(d[g["key"]])
            and g["low"] <= d[g["key"]] <= g["high"]
        ),
        lambda d, g, pen: d.update({g["key"]: pen.rng.randint(g["low"], g["high"])}),
        lambda d, g, pen: d.update(
            {g["key"]: pen.rng.choice([g["high"] + 1, g["high"] + 1, g["high"] + 5, str(g["high"])])}
        ),
        lambda text, pen: {
            **one_key(pen, ("rating", "score", "stars", "level", "age")),
            "low": 1,
            "high": pen.rng.choice([3, 5, 6, 10, 12]),
        },
    ),
    _json(
        "json_array",
        lambda g: sized("len(arr(r))", g),
        lambda d, g: bool(d) and compared(len(d), g),
        lambda d, g, pen: _resize_array(d, wanted(g, pen, True), pen),
        lambda d, g, pen: _resize_array(d, wanted(g, pen, False), pen),
        lambda text, pen: {"n": pen.rng.randint(2, 6)},
        array=True,
    ),
    _json(
        "json_array_key",
        lambda g: f"len(arr(r)) > 0 and all({literal(g['key'])} in dict(d) for d in arr(r))",
        lambda d, g: bool(d) and all(isinstance(one, dict) and g["key"] in one for one in d),
        _as_objects,
        _drop_from_one,
        lambda text, pen: one_key(pen),
        array=True,
    ),
    _json(
        "json_array_texts",
        lambda g: "len(arr(r)) > 0 and all(isinstance(x, str) for x in arr(r))",
        lambda d, g: {type(one) for one in d} == {str},
        _texts,
        lambda d, g, pen: d.__setitem__(
            pen.rng.randrange(len(d)), pen.rng.choice([pen.rng.randint(1, 90), {"text": "x"}, None])
        ),
        array=True,
    ),
)
