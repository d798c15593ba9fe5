"""Kinds of rules with wordings of their own, about whole texts and about documents such as JSON or CSV."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from research.smol.training_rows.families.base import Arguments, Form, split_sign
from research.smol.training_rows.kinds.shapes import Kind, defined, written_number
from research.smol.training_rows.kinds.units import Unit
from research.smol.training_rows.writing import Pen, sections

Given = Mapping[str, Any]
"""The arguments of a rule."""
Edit = Callable[[str, Given, Pen], str]


def nothing(text: str, pen: Pen) -> dict[str, Any]:
    """Draw no arguments."""
    return {}


@dataclass(frozen=True)
class Parts:
    """The parts of a rule."""

    code: Callable[[Mapping[str, Any]], str]
    """The program's expression on the response `r`."""
    holds: Callable[[str, Mapping[str, Any]], bool]
    """The label, by an implementation other than the program's."""
    follow: Edit
    violate: Edit
    draw: Callable[[str, Pen], dict[str, Any]] = nothing
    """Draws the arguments, given a natural text."""
    uses: tuple[str, ...] = ()
    """Functions that the program defines."""
    order: int = 65


class Rule(Kind):
    """A rule with wordings of its own."""

    shape = "rule"

    def __init__(self, name: str, group: str, parts: Parts) -> None:
        self.parts, self.order = parts, parts.order
        super().__init__(name, group)

    def wordings(self, form: Form | None = None) -> Sequence[tuple[str, str]]:
        if form == "clause":
            return ()
        found = [split_sign(line) for line in sections("rules")[self.id.partition(":")[2]]]
        return [one for one in found if form is None or one[1][0].islower() == (form != "sentence")]

    def definitions(self, given: Arguments) -> Sequence[str]:
        return self.parts.uses

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        given = self.parts.draw(text, pen)
        return {**given, "sign": relation} if relation else given

    def expression(self, given: Arguments) -> str:
        return self.parts.code(given)

    def holds(self, text: str, given: Arguments) -> bool:
        return self.parts.holds(text, given)

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return self.parts.follow(text, given, pen)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        return self.parts.violate(text, given, pen)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        style = rng.choice(['"{}"', '"{}"', "'{}'", "{}", "`{}`"])
        found: dict[str, str] = {}
        for name, value in given.items():
            if isinstance(value, list):
                written = [style.replace("{}", str(one)) for one in value]
                found[name] = ", ".join(written)
                found[f"{name}_and"] = (
                    f"{', '.join(written[:-1])} and {written[-1]}" if len(written) > 1 else written[0]
                )
                found[f"{name}_line"] = ",".join(map(str, value))
            elif isinstance(value, int):
                found[name] = written_number(value, rng)
                found[f"{name}_digit"] = str(value)
                found[f"{name}_s"] = "" if value == 1 else "s"
            else:
                found[name] = str(value)
                found[f"{name}_quoted"] = rng.choice(['"{}"', '"{}"', "'{}'"]).replace("{}", str(value))
        return found


def compared(count: int, given: Mapping[str, Any]) -> bool:
    """Compare a count with the number of a rule."""
    n = given["n"]
    return {">=": count >= n, "<=": count <= n, "==": count == n, ">": count > n, "<": count < n}[
        given["sign"]
    ]


def wanted(given: Mapping[str, Any], pen: Pen, keep: bool) -> int:
    """Return a number that keeps or breaks the comparison of a rule, often narrowly."""
    n, sign = given["n"], given["sign"]
    keeps = {
        ">=": [n, n, n + 1],
        "<=": [n, n, max(1, n - 1)],
        "==": [n],
        ">": [n + 1, n + 2],
        "<": [max(1, n - 1)],
    }[sign]
    breaks = {">=": [n - 1], "<=": [n + 1, n + 2], "==": [n - 1, n + 1], ">": [n, n - 1], "<": [n, n + 1]}[
        sign
    ]
    return max(0, pen.rng.choice(keeps if keep else breaks))


def rule(
    name: str,
    group: str,
    code: Callable[[Given], str],
    holds: Callable[[str, Given], bool],
    follow: Edit,
    violate: Edit,
    draw: Callable[[str, Pen], dict[str, Any]] = nothing,
    uses: Sequence[Unit] = (),
    order: int = 65,
) -> Rule:
    """Return a rule about a text whose program uses the functions of some units."""
    return Rule(name, group, Parts(code, holds, follow, violate, draw, defined(*uses), order))


def from_range(low: int, high: int) -> Callable[[str, Pen], dict[str, Any]]:
    """Return a draw of a number `n`."""
    return lambda text, pen: {"n": pen.rng.randint(low, high)}


def lines_of(text: str) -> list[str]:
    """Return the lines that are not blank."""
    return [line for line in text.splitlines() if line.strip()]
