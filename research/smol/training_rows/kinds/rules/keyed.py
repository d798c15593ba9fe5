"""Kinds of rules about YAML lines of keys and values, and about XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
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
    VALUES,
    document_rule,
    draw_keys,
    misspelt,
    one_key,
    sized,
    value,
)
from research.smol.training_rows.kinds.units import LINES
from research.smol.training_rows.writing import Pen

PAIRS = 'def pairs(t): return re.findall(r"^(\\w+): (.+)", t, re.M)'
TAGS = 'def tags(t): return re.findall(r"<(\\w+)>", t)'
Pairs = list[tuple[str, str]]


def _read_pairs(text: str) -> Pairs:
    lines = [line for line in text.splitlines() if line.strip()]
    found = [line.partition(": ") for line in lines]
    good = [(key, one) for key, mark, one in found if mark and re.fullmatch(r"\w+", key) and one]
    return good if len(good) > 1 else []


def _fresh_pairs(pen: Pen) -> Pairs:
    return [(key, str(value(key, pen))) for key in draw_keys(pen, 3, 5)]


def _write_pairs(pairs: Pairs) -> str:
    return "\n".join(f"{key}: {one}" if key else one for key, one in pairs)


def _with_keys(pairs: Pairs, keys: Sequence[str], pen: Pen) -> Pairs:
    known = dict(pairs)
    return [*pairs, *((key, str(value(key, pen))) for key in keys if key not in known)]


def _pairs_rule(
    name: str,
    code: Callable[[Given], str],
    check: Callable[[Pairs, Given], bool],
    good: Callable[[Pairs, Given, Pen], Pairs],
    bad: Callable[[Pairs, Given, Pen], Pairs],
    draw: Callable[[str, Pen], dict[str, Any]],
    *more: str,
) -> Rule:
    return document_rule(
        name,
        "yaml",
        _read_pairs,
        _fresh_pairs,
        _write_pairs,
        (PAIRS, *more),
        code,
        check,
        good,
        bad,
        draw,
        alone=bool(more),
    )


def _without_key(pairs: Pairs, given: Given, pen: Pen) -> Pairs:
    key = pen.rng.choice(given["keys"])
    return [
        (misspelt(one, pen) if pen.chance(0.5) else "notes", text) if one == key else (one, text)
        for one, text in pairs
    ]


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
    _pairs_rule(
        "yaml_keys",
        lambda g: f"all(k in dict(pairs(r)) for k in {literal(g['keys'])})",
        lambda pairs, g: set(g["keys"]) <= {key for key, _ in pairs},
        lambda pairs, g, pen: _with_keys(pairs, g["keys"], pen),
        _without_key,
        lambda text, pen: {"keys": draw_keys(pen, 2, 4)},
    ),
    _pairs_rule(
        "yaml_order",
        lambda g: f"[k for k, v in pairs(r)] == {literal(g['keys'])}",
        lambda pairs, g: [key for key, _ in pairs] == g["keys"],
        lambda pairs, g, pen: [(key, dict(pairs).get(key) or str(value(key, pen))) for key in g["keys"]],
        _swapped,
        lambda text, pen: {"keys": draw_keys(pen, 2, 4)},
    ),
    _pairs_rule(
        "yaml_count",
        lambda g: sized("len(pairs(r))", g),
        lambda pairs, g: compared(len(pairs), g),
        lambda pairs, g, pen: _sized(pairs, wanted(g, pen, True), pen),
        lambda pairs, g, pen: _sized(pairs, max(2, wanted(g, pen, False)), pen),
        lambda text, pen: {"n": pen.rng.randint(3, 6)},
    ),
    _pairs_rule(
        "yaml_value",
        lambda g: f"dict(pairs(r)).get({literal(g['key'])}) == {literal(g['value'])}",
        lambda pairs, g: dict(pairs).get(g["key"], "") == g["value"],
        lambda pairs, g, pen: _revalued(pairs, g["key"], g["value"]),
        lambda pairs, g, pen: _revalued(
            pairs, g["key"], pen.rng.choice([one for one in VALUES if one != g["value"]])
        ),
        lambda text, pen: {
            **one_key(pen, ("status", "color", "size", "category", "level")),
            "value": pen.rng.choice(VALUES),
        },
    ),
    _pairs_rule(
        "yaml_only",
        lambda g: "len(pairs(r)) > 1 and len(pairs(r)) == len(lines(r))",
        lambda pairs, g: True,
        lambda pairs, g, pen: list(pairs),
        lambda pairs, g, pen: (
            [*pairs, ("", pen.sentence().replace(": ", " "))]
            if pen.chance(0.6)
            else [("", "Here it is"), *pairs]
        ),
        lambda text, pen: {},
        LINES.definition,
    ),
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
    for key in draw_keys(pen, 2, 4):
        ElementTree.SubElement(root, key).text = str(value(key, pen))
    return root


def _write_xml(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _xml_rule(
    name: str,
    code: Callable[[Given], str],
    check: Callable[[ElementTree.Element, Given], bool],
    good: Callable[[ElementTree.Element, Given, Pen], None],
    bad: Callable[[ElementTree.Element, Given, Pen], None],
    draw: Callable[[str, Pen], dict[str, Any]],
) -> Rule:
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
        one.tag = misspelt(one.tag, pen)


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
    _xml_rule(
        "xml_root",
        lambda g: (
            f"tags(r)[:1] == [{literal(g['tag'])}] and r.strip().endswith({literal('</' + g['tag'] + '>')})"
        ),
        lambda root, g: root.tag == g["tag"],
        lambda root, g, pen: _renamed_root(root, g["tag"]),
        lambda root, g, pen: _renamed_root(
            root, pen.rng.choice([one for one in (*_ROOTS, g["tag"] + "s") if one != g["tag"]])
        ),
        lambda text, pen: {"tag": pen.rng.choice(_ROOTS)},
    ),
    _xml_rule(
        "xml_tags",
        lambda g: f"all(x in tags(r) for x in {literal(g['keys'])})",
        lambda root, g: all(any(one.tag == tag for one in root.iter()) for tag in g["keys"]),
        _with_children,
        _renamed_child,
        lambda text, pen: {"keys": draw_keys(pen, 2, 4)},
    ),
    _xml_rule(
        "xml_count",
        lambda g: sized(f"tags(r).count({literal(g['tag'])})", g),
        lambda root, g: (found := len(list(root.iter(g["tag"])))) > 0 and compared(found, g),
        _with_copies(lambda g, pen: wanted(g, pen, True)),
        _with_copies(lambda g, pen: wanted(g, pen, False)),
        lambda text, pen: {
            "tag": pen.rng.choice(["step", "entry", "author", "line", "option"]),
            "n": pen.rng.randint(2, 5),
        },
    ),
    _xml_rule(
        "xml_children",
        lambda g: sized("len(tags(r)) - 1", g),
        lambda root, g: len(root) > 0 and compared(len(list(root.iter())) - 1, g),
        lambda root, g, pen: _xml_sized(root, wanted(g, pen, True), pen),
        lambda root, g, pen: _xml_sized(root, wanted(g, pen, False), pen),
        lambda text, pen: {"n": pen.rng.randint(2, 5)},
    ),
)


def _xml_sized(root: ElementTree.Element, count: int, pen: Pen) -> None:
    for one in list(root)[count:]:
        root.remove(one)
    while len(root) < count:
        _child(root, pen.rng.choice(KEYS), pen)
