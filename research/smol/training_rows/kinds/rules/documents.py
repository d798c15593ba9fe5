"""The common parts of rules about documents: keys, their values, and a rule about one document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from research.smol.training_rows.kinds.rules.base import (
    Given,
    Parts,
    Rule,
)
from research.smol.training_rows.kinds.units import LINES
from research.smol.training_rows.writing import Pen

KEYS = (
    *(
        "name",
        "title",
        "price",
        "city",
        "date",
        "author",
        "status",
        "email",
        "color",
        "size",
        "year",
        "country",
        "owner",
    ),
    *(
        "rating",
        "weight",
        "language",
        "topic",
        "summary",
        "level",
        "category",
        "quantity",
        "unit",
        "source",
        "phone",
        "id",
    ),
)
LISTS = ("tags", "items", "steps", "colors", "authors", "parts", "options")
VALUES = (
    "open",
    "closed",
    "draft",
    "red",
    "blue",
    "active",
    "pending",
    "daily",
    "weekly",
    "small",
    "large",
    "beta",
)


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
    if key in LISTS:
        return [pen.word() for _ in range(pen.rng.randint(2, 5))]
    return pen.rng.choice([*VALUES, pen.word()])


def draw_keys(pen: Pen, low: int, high: int) -> list[str]:
    """Return a number of different keys, from `low` to `high`."""
    return pen.rng.sample(KEYS, pen.rng.randint(low, high))


def sized(count: str, given: Given) -> str:
    """Return the program's comparison of a count with a number, which nothing at all never passes."""
    return f"{'0 < ' if given['sign'].startswith('<') else ''}{count} {given['sign']} {given['n']}"


def misspelt(key: str, pen: Pen) -> str:
    """Return a key that differs a little."""
    return pen.rng.choice([key.capitalize(), f"{key}s", f"the_{key}", key[:-1]])


def one_key(pen: Pen, keys: Sequence[str] = KEYS) -> dict[str, Any]:
    """Draw the argument `key`."""
    return {"key": pen.rng.choice(keys)}


def document_rule(
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
