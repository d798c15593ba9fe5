"""Properties of values such as dates and numbers, and forms with which a unit starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from research.smol.training_rows.families.keywords import literal
from research.smol.training_rows.kinds.properties import Arguments, Property
from research.smol.training_rows.kinds.units import Unit
from research.smol.training_rows.writing import Pen


class Begins(Property):
    """The unit begins with a text that its own phrases name, such as the year of a date."""

    def __init__(
        self, name: str, choices: Mapping[str, str], phrases: Sequence[str], *, end: bool = False
    ) -> None:
        """`choices` are the texts and how a prompt names them; with `end` the unit ends with it."""
        self.name, self.choices, self.phrases, self.end = name, choices, tuple(phrases), end

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": pen.rng.choice(list(self.choices))}

    def written(self, given: Arguments, pen: Pen) -> str:
        return self.choices[given["value"]]

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.{'endswith' if self.end else 'startswith'}({literal(given['value'])})"

    def holds(self, part: str, given: Arguments) -> bool:
        value = given["value"]
        return part[-len(value) :] == value if self.end else part[: len(value)] == value

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        value = given["value"]
        other = next(
            (one for one in self.choices if (part.endswith(one) if self.end else part.startswith(one))), None
        )
        if other is not None:
            return part[: -len(other)] + value if self.end else value + part[len(other) :]
        return self._cut(part, value)

    def _cut(self, part: str, value: str) -> str:
        mark = "." if "." in value or self.end else "-" if "-" in value else ""
        if self.end:
            return part.rpartition(mark)[0] + value
        return value + (part.partition(mark)[2] if mark else part[1:])

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        others = [one for one in self.choices if one != given["value"]]
        return self.make(self._cut(part, given["value"]), {"value": pen.rng.choice(others)}, pen)


class Computed(Property):
    """A number has an arithmetic property."""

    def __init__(
        self,
        name: str,
        source: str,
        test: Callable[[int, Arguments], bool],
        phrases: Sequence[str],
        draw: Callable[[Pen], dict[str, Any]] = lambda pen: {},
    ) -> None:
        """`source` is the expression with `{}` for the integer and names of arguments in braces."""
        self.name, self.source, self.test, self.phrases, self._draw = name, source, test, tuple(phrases), draw

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return self._draw(pen)

    def written(self, given: Arguments, pen: Pen) -> str:
        return f"{given['low']} and {given['value']}" if "low" in given else str(given.get("value", ""))

    def code(self, part: str, given: Arguments) -> str:
        found = self.source.replace("{}", f"int({part})")
        return found.replace("{low}", str(given.get("low"))).replace("{value}", str(given.get("value")))

    def holds(self, part: str, given: Arguments) -> bool:
        return self.test(int(part), given)

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return self._near(int(part), given, pen, True)

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return self._near(int(given.get("value", part)) if pen.chance(0.5) else int(part), given, pen, False)

    def _near(self, number: int, given: Arguments, pen: Pen, keep: bool) -> str:
        found = sorted(
            (abs(one - number), one)
            for one in range(max(1, number - 60), number + 60)
            if self.test(one, given) == keep
        )
        if not found:
            found = [(0, one) for one in range(1, 2100) if self.test(one, given) == keep]
        return str(pen.rng.choice(found[:3])[1])


class StartsWithPattern(Property):
    """The unit starts with a clock time, an emoji or another form."""

    def __init__(
        self,
        name: str,
        source: str,
        test: str,
        phrases: Sequence[str],
        new: Callable[[Pen], str],
        wrong: Callable[[Pen], str],
    ) -> None:
        self.name, self.source, self.test, self.phrases, self.new, self.wrong = (
            name,
            source,
            re.compile(test),
            tuple(phrases),
            new,
            wrong,
        )

    def code(self, part: str, given: Arguments) -> str:
        return self.source.replace("{}", part)

    def holds(self, part: str, given: Arguments) -> bool:
        return self.test.match(part) is not None

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return f"{self.new(pen)} {part}"

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        bare = self.test.sub("", part, count=1).strip()
        return f"{self.wrong(pen)} {bare}".strip()


YEAR = Begins(
    "year",
    {f"{year}-": str(year) for year in range(2018, 2029)},
    (
        "be in {value}|is in {value}",
        "fall in the year {value}|falls in the year {value}",
        "lie in {value}|lies in {value}",
        "have the year {value}|has the year {value}",
        "belong to the year {value}|belongs to the year {value}",
    ),
)
DOMAIN = Begins(
    "domain",
    {one: f'"{one}"' for one in (".org", ".com", ".net", ".eu")},
    (
        "end with {value}|ends with {value}",
        "end in {value}|ends in {value}",
        "have the ending {value}|has the ending {value}",
        "belong to a {value} domain|belongs to a {value} domain",
        "finish with {value}|finishes with {value}",
    ),
    end=True,
)
EXTENSION = Begins(
    "extension",
    {one: f'"{one}"' for one in (".txt", ".pdf", ".csv", ".py")},
    (
        "end with {value}|ends with {value}",
        "have the extension {value}|has the extension {value}",
        "be a {value} file|is a {value} file",
        "end in {value}|ends in {value}",
        "carry the ending {value}|carries the ending {value}",
    ),
    end=True,
)
MAJOR = Begins(
    "major",
    {f"{number}.": str(number) for number in range(1, 8)},
    (
        "have the major number {value}|has the major number {value}",
        "start with {value}.|starts with {value}.",
        "belong to release {value}|belongs to release {value}",
        "be a {value}.x version|is a {value}.x version",
        "begin with the number {value}|begins with the number {value}",
    ),
)
CURRENCY = Begins(
    "currency",
    {"$": "dollars ($)", "€": "euros (€)", "£": "pounds (£)"},
    (
        "be in {value}|is in {value}",
        "be given in {value}|is given in {value}",
        "use {value}|uses {value}",
        "be stated in {value}|is stated in {value}",
        "be an amount in {value}|is an amount in {value}",
    ),
)
PREFIX = Begins(
    "prefix",
    {f"{code}-": code for code in ("555", "212", "800", "900", "321")},
    (
        "start with {value}|starts with {value}",
        "have the prefix {value}|has the prefix {value}",
        "begin with {value}|begins with {value}",
        "have the area code {value}|has the area code {value}",
        "carry the code {value} in front|carries the code {value} in front",
    ),
)
EVEN = Computed(
    "even",
    "{} % 2 == 0",
    lambda n, g: not n & 1,
    (
        "be even|is even",
        "be an even number|is an even number",
        "be divisible by two|is divisible by two",
        "be a multiple of 2|is a multiple of 2",
        "not be odd|is not odd",
    ),
)
ODD = Computed(
    "odd",
    "{} % 2 == 1",
    lambda n, g: bool(n & 1),
    (
        "be odd|is odd",
        "be an odd number|is an odd number",
        "not be divisible by two|is not divisible by two",
        "not be even|is not even",
        "leave a remainder of 1 when divided by 2|leaves a remainder of 1 when divided by 2",
    ),
)
MULTIPLE = Computed(
    "multiple",
    "{} % {value} == 0",
    lambda n, g: n // g["value"] * g["value"] == n,
    (
        "be a multiple of {value}|is a multiple of {value}",
        "be divisible by {value}|is divisible by {value}",
        "divide evenly by {value}|divides evenly by {value}",
        "be in the table of {value}|is in the table of {value}",
        "leave no remainder when divided by {value}|leaves no remainder when divided by {value}",
    ),
    lambda pen: {"value": pen.rng.choice([3, 4, 5, 10])},
)
BELOW = Computed(
    "below",
    "{} <= {value}",
    lambda n, g: not n > g["value"],
    (
        "be at most {value}|is at most {value}",
        "not be larger than {value}|is not larger than {value}",
        "be {value} or less|is {value} or less",
        "not exceed {value}|does not exceed {value}",
        "be no greater than {value}|is no greater than {value}",
    ),
    lambda pen: {"value": pen.rng.choice([10, 12, 20, 25, 30, 50, 100])},
)
BETWEEN = Computed(
    "between",
    "{low} <= {} <= {value}",
    lambda n, g: n in range(g["low"], g["value"] + 1),
    (
        "be between {value}|is between {value}",
        "lie between {value}|lies between {value}",
        "stay between {value}|stays between {value}",
        "be in the range between {value}|is in the range between {value}",
        "have a value between {value}|has a value between {value}",
    ),
    lambda pen: {
        "low": (low := pen.rng.choice([1, 5, 10, 20])),
        "value": low + pen.rng.choice([5, 10, 20, 30]),
    },
)
CLOCK = StartsWithPattern(
    "clock",
    r're.match(r"\d\d:\d\d ", {}) is not None',
    r"\d\d:\d\d ",
    (
        "start with a time such as 09:30|starts with a time such as 09:30",
        "begin with the time (HH:MM)|begins with the time (HH:MM)",
        "open with a clock time like 14:05|opens with a clock time like 14:05",
        "have the time, as in 08:15, at its start|has the time, as in 08:15, at its start",
        "be stamped with the time (HH:MM) at the beginning|is stamped with the time (HH:MM) at the beginning",
    ),
    lambda pen: f"{pen.rng.randint(6, 22):02}:{pen.rng.choice(['00', '15', '30', '45'])}",
    lambda pen: pen.rng.choice(["9:15", "Noon:", "", "(08:30)"]),
)
EMOJI = StartsWithPattern(
    "emoji",
    '"\U0001f300" <= {}[:1] <= "\U0001faff"',
    "[\U0001f300-\U0001faff]",
    (
        "start with an emoji|starts with an emoji",
        "begin with an emoji|begins with an emoji",
        "open with an emoji|opens with an emoji",
        "have an emoji as its first character|has an emoji as its first character",
        "lead with an emoji|leads with an emoji",
    ),
    lambda pen: pen.rng.choice("😀🎉🚀🌍🍎🐶🌻🔥🎁🏠"),
    lambda pen: pen.rng.choice(["", "*", ":)", "So"]),
)
