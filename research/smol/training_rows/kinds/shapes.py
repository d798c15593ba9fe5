"""Shapes of rules: how many units there are, what every, some or one of them must be, and their order.

A kind of rule is a shape with units and often a property. Its program is composed in the same way, from the
unit's function and the property's expression.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise

from research.smol.training_rows.families.base import (
    NUMBERS,
    Arguments,
    CountFamily,
    Family,
    Form,
    Holds,
    split_sign,
)
from research.smol.training_rows.kinds.lengths import Length
from research.smol.training_rows.kinds.properties import Property
from research.smol.training_rows.kinds.units import Unit
from research.smol.training_rows.writing import Pen, sections
from tirjudge_environments.instruction_checks import Verifier

_SMALL = (2, 2, 3, 3, 4, 5)
_MANY = {
    "shouted": (8, 10, 12, 15),
    "hanzi": (3, 4, 6, 8),
    "accents": (2, 3, 5),
}


@cache
def frames(shape: str, form: Form | None) -> tuple[tuple[str, str], ...]:
    """Return the wordings of a shape with their relations; without a form its sentences and fragments."""
    name = f"{shape} {form}" if form in ("clause", "tail") else shape
    found = [split_sign(line) for line in sections("frames").get(name, ())]
    return tuple(one for one in found if form is None or one[1][0].islower() == (form != "sentence"))


class Kind(Family):
    """A kind of rule with the group that it belongs to."""

    group: str
    shape: str
    order = 50

    def __init__(self, name: str, group: str) -> None:
        self.id, self.group = f"{self.shape}:{name}", group

    def wordings(self, form: Form | None = None) -> Sequence[tuple[str, str]]:
        return frames(self.shape, form)

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (Holds(lambda text: self.holds(text, given)),)

    @abstractmethod
    def holds(self, text: str, given: Arguments) -> bool: ...


def defined(*units: Unit) -> tuple[str, ...]:
    """Return the functions of units."""
    return tuple(unit.definition for unit in units)


def named(unit: Unit, rng: random.Random, count: int = 2) -> dict[str, str]:
    """Return a unit's name as the slots of a wording."""
    one, many = rng.choice(unit.nouns)
    return {"unit": one, "units": one if count == 1 else many}


def plural(base: str) -> str:
    """Return what completes "sentences that ..." from what completes "must ..."."""
    if base.startswith("be "):
        return f"are {base[3:]}"
    return (
        f"are not {base[7:]}"
        if base.startswith("not be ")
        else f"do {base}"
        if base.startswith("not ")
        else base
    )


def written_number(number: int, rng: random.Random) -> str:
    """Return a number as a digit or a word."""
    return NUMBERS[number] if number < len(NUMBERS) and rng.random() < 0.35 else str(number)


class Count(CountFamily, Kind):
    """The number of units in a text."""

    shape = "count"
    argument = ""
    order = 45

    def __init__(self, unit: Unit, group: str) -> None:
        self.unit = unit
        Kind.__init__(self, unit.name, group)

    def wordings(self, form: Form | None = None) -> Sequence[tuple[str, str]]:
        return frames("count", form)

    def definitions(self, given: Arguments) -> Sequence[str]:
        return defined(self.unit)

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice(_MANY.get(self.unit.name, (*_SMALL, 6, 8) if relation == "<" else _SMALL))

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        given: Arguments = {"relation": relation, "n": self.number(relation, text, {}, pen)}
        if relation == "..":
            given["b"] = given["n"] + pen.rng.choice([1, 2, 2, 3, 4])
        elif relation in (">=", "<=") and pen.chance(0.25) and self.unit.name not in _MANY:
            given["n"] = 1
        return given

    def count(self, text: str, given: Arguments) -> int:
        return len(self.unit.spans(text))

    def counted_in(self, given: Arguments) -> str:
        return f"len({self.unit.name}(r))"

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return Kind.checks(self, given)

    def holds(self, text: str, given: Arguments) -> bool:
        return CountFamily.holds(self, text, given)

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        return self.unit.add(text, pen)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return self.unit.remove(text, pen)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        n = given["n"]
        return {
            **named(self.unit, rng, n if given["relation"] != ".." else 2),
            "n": written_number(n, rng),
            "a": str(n),
            "b": str(given.get("b", 0)),
        }


class Asked(Kind):
    """A shape that asks a property of units."""

    def __init__(self, unit: Unit, asked: Property, group: str, name: str = "") -> None:
        self.unit, self.asked = unit, asked
        super().__init__(name or f"{unit.name}_{asked.name}", group)

    def definitions(self, given: Arguments) -> Sequence[str]:
        return defined(self.unit, *self.asked.uses())

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        given: Arguments = dict(self.asked.draw(self.unit, text, pen))
        phrase = pen.rng.choice(self.asked.phrases)
        if isinstance(self.asked, Length):
            given["sign"], phrase = split_sign(phrase)
        base, _, third = phrase.partition("|")
        value = self.asked.written(given, pen)
        if given.get("value") == 1:
            base, third = (
                one.replace("words", "word").replace("sentences", "sentence") for one in (base, third)
            )
        counted = getattr(self.asked, "counted", "")
        given["base"], given["third"] = (
            one.replace(
                "{counted}", counted if given.get("value") != 1 else counted.removesuffix("s")
            ).replace("{value}", value)
            for one in (base, third)
        )
        return given

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        base = given["base"]
        return {**named(self.unit, rng), "prop": base, "props": given["third"], "plural": plural(base)}

    def has(self, part: str, given: Arguments) -> bool:
        """Return True if the part has the property."""
        return self.asked.holds(part, given)

    def changed(self, text: str, number: int, keep: bool, given: Arguments, pen: Pen) -> str:
        """Return the text with one unit changed so that it has or lacks the property."""
        change = self.asked.make if keep else self.asked.spoil
        return self.unit.replace(text, number, change(self.unit.parts(text)[number], given, pen))

    def with_units(self, text: str, pen: Pen, fewest: int = 1) -> str:
        """Return the text, with some units if it has too few."""
        missing = max(0, fewest - len(self.unit.spans(text)))
        if missing and not self.unit.always:
            missing += pen.rng.randint(0, 2)
        for _ in range(missing):
            text = self.unit.add(text, pen)
        return text


class Every(Asked):
    """Every unit has the property."""

    shape = "every"
    order = 55

    def holds(self, text: str, given: Arguments) -> bool:
        parts = self.unit.parts(text)
        return bool(parts) and all(self.has(part, given) for part in parts)

    def expression(self, given: Arguments) -> str:
        x = self.unit.name[0]
        found = f"all({self.asked.code(x, given)} for {x} in {self.unit.name}(r))"
        return found if self.unit.always else f"len({self.unit.name}(r)) > 0 and {found}"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        text = self.with_units(text, pen, 2)
        for number in reversed(range(len(self.unit.spans(text)))):
            parts = self.unit.parts(text)
            if number < len(parts) and not self.has(parts[number], given):
                text = self.changed(text, number, True, given, pen)
        return text

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        text = self.with_units(text, pen, 2)
        if not self.holds(text, given):
            return text
        count = len(self.unit.spans(text))
        wrong = 1 if pen.chance(0.65) else pen.rng.randint(1, count)
        for number in sorted(pen.rng.sample(range(count), wrong), reverse=True):
            if number < len(self.unit.spans(text)):
                text = self.changed(text, number, False, given, pen)
        return text


class Some(CountFamily, Asked):
    """A number of units have the property."""

    shape = "some"
    argument = ""
    order = 52

    def __init__(self, unit: Unit, asked: Property, group: str, name: str = "") -> None:
        Asked.__init__(self, unit, asked, group, name)

    def wordings(self, form: Form | None = None) -> Sequence[tuple[str, str]]:
        return frames("some", form)

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        given = Asked.draw(self, "", text, request, pen)
        n = pen.rng.choice([1, 2, 2, 3, 3, 4])
        return {**given, "relation": relation, "n": max(2, n) if relation == "<" else n}

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return int(given["n"])

    def definitions(self, given: Arguments) -> Sequence[str]:
        return Asked.definitions(self, given)

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return Kind.checks(self, given)

    def holds(self, text: str, given: Arguments) -> bool:
        return CountFamily.holds(self, text, given)

    def count(self, text: str, given: Arguments) -> int:
        return sum(self.has(part, given) for part in self.unit.parts(text))

    def counted_in(self, given: Arguments) -> str:
        x = self.unit.name[0]
        return f"sum({self.asked.code(x, given)} for {x} in {self.unit.name}(r))"

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        lacking = [number for number, part in enumerate(self.unit.parts(text)) if not self.has(part, given)]
        if not lacking or pen.chance(0.3):
            return self.unit.add(text, pen, self.asked.make(self.unit.new(pen), given, pen))
        return self.changed(text, pen.rng.choice(lacking), True, given, pen)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        having = [number for number, part in enumerate(self.unit.parts(text)) if self.has(part, given)]
        return self.changed(text, pen.rng.choice(having), False, given, pen) if having else text

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        n = given["n"]
        return {
            **Asked.fields(self, given, rng),
            **named(self.unit, rng, n),
            "n": written_number(n, rng),
            "props": given["third"] if n == 1 else plural(given["base"]),
        }


PLACES: Mapping[str, tuple[str, int, int | None]] = {
    "first": ("first", 0, 1),
    "last": ("last|final", -1, None),
    "second": ("second", 1, 2),
    "third": ("third", 2, 3),
    "penultimate": ("second to last|last but one", -2, -1),
}
"""Names of places, and the slice of the list of units that is the unit there."""


class Placed(Asked):
    """The unit at a place has the property."""

    shape = "placed"
    order = 60

    def __init__(self, place: str, unit: Unit, asked: Property, group: str) -> None:
        self.place = place
        super().__init__(unit, asked, group, f"{place}_{unit.name}_{asked.name}")

    def _number(self, text: str) -> int | None:
        _, start, stop = PLACES[self.place]
        found = list(range(len(self.unit.spans(text))))[start:stop]
        return found[0] if found else None

    def holds(self, text: str, given: Arguments) -> bool:
        number = self._number(text)
        return number is not None and self.has(self.unit.parts(text)[number], given)

    def expression(self, given: Arguments) -> str:
        _, start, stop = PLACES[self.place]
        x = self.unit.name[0]
        shown = f"{start or ''}:{'' if stop is None else stop}"
        return f"any({self.asked.code(x, given)} for {x} in {self.unit.name}(r)[{shown}])"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return self._edited(text, True, given, pen)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        changed = self._edited(text, False, given, pen)
        if pen.chance(0.3) and not self.holds(changed, given):
            # A near miss: another unit has the property.
            other = pen.rng.randrange(len(self.unit.spans(changed)))
            if other != self._number(changed):
                return self.changed(changed, other, True, given, pen)
        return changed

    def _edited(self, text: str, keep: bool, given: Arguments, pen: Pen) -> str:
        text = self.with_units(text, pen, {"second": 3, "third": 4, "penultimate": 3}.get(self.place, 1))
        number = self._number(text)
        return text if number is None else self.changed(text, number, keep, given, pen)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {**super().fields(given, rng), "place": rng.choice(PLACES[self.place][0].split("|"))}


class Listed(Kind):
    """A relation among all units, such as their order; `key` gives what is compared."""

    order = 58

    def __init__(self, name: str, unit: Unit, group: str, words: Sequence[str]) -> None:
        self.unit, self.words = unit, words
        super().__init__(name, group)

    def definitions(self, given: Arguments) -> Sequence[str]:
        return defined(self.unit)

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {}

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {**named(self.unit, rng), "how": rng.choice(self.words)}

    def rewritten(self, text: str, parts: Sequence[str]) -> str:
        """Return the text with other units, as many as it has."""
        for number in reversed(range(len(parts))):
            text = self.unit.replace(text, number, parts[number])
        return text

    def filled(self, text: str, pen: Pen) -> str:
        """Return the text with three units or more."""
        for _ in range(max(0, 3 - len(self.unit.spans(text))) + pen.rng.randint(0, 1)):
            text = self.unit.add(text, pen)
        return text


class Sorted(Listed):
    """The units are in an order."""

    shape = "sorted"

    def __init__(
        self,
        name: str,
        unit: Unit,
        group: str,
        words: Sequence[str],
        key: str,
        value: Callable[[str], object],
        *,
        down: bool = False,
    ) -> None:
        self.key, self.value, self.down = key, value, down
        super().__init__(name, unit, group, words)

    def holds(self, text: str, given: Arguments) -> bool:
        values = [self.value(part) for part in self.unit.parts(text)]
        pairs = list(pairwise(values))
        return len(values) > 1 and all((b <= a) if self.down else (a <= b) for a, b in pairs)  # type: ignore[operator]

    def expression(self, given: Arguments) -> str:
        options = f", {self.key}" if self.key else ""
        options += ", reverse=True" if self.down else ""
        found = f"{self.unit.name}(r)"
        return f"len({found}) > 1 and {found} == sorted({found}{options})"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        text = self.filled(text, pen)
        parts = self.unit.parts(text)
        return self.rewritten(text, sorted(parts, key=self.value, reverse=self.down))  # type: ignore[arg-type]

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        parts = self.unit.parts(self.follow(text, given, pen))
        text = self.filled(text, pen)
        if len(parts) != len(self.unit.spans(text)):
            return text
        if pen.chance(0.6):
            at = pen.rng.randrange(len(parts) - 1)
            parts[at], parts[at + 1] = parts[at + 1], parts[at]
        else:
            parts = parts[::-1] if pen.chance(0.5) else pen.rng.sample(parts, len(parts))
        return self.rewritten(text, parts)


class Distinct(Listed):
    """No two units are the same in some respect."""

    shape = "distinct"

    def __init__(
        self,
        name: str,
        unit: Unit,
        group: str,
        words: Sequence[str],
        code: str,
        value: Callable[[str], str],
        copy: Callable[[str, str, Pen], str],
        fresh: Callable[[str, Pen], str],
    ) -> None:
        self.code, self.value, self.copy, self.fresh = code, value, copy, fresh
        super().__init__(name, unit, group, words)

    def holds(self, text: str, given: Arguments) -> bool:
        values = [self.value(part) for part in self.unit.parts(text)]
        return len(values) > 0 and len(values) == len(set(values))

    def expression(self, given: Arguments) -> str:
        x = self.unit.name[0]
        found = f"[{self.code.replace('{}', x)} for {x} in {self.unit.name}(r)]"
        return f"len(set({found[1:-1]})) == len({self.unit.name}(r))" + ("" if self.unit.always else " > 0")

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        text = self.filled(text, pen)
        seen: set[str] = set()
        parts = self.unit.parts(text)
        for number, part in enumerate(parts):
            for _ in range(8):
                if self.value(part) not in seen:
                    break
                part = self.fresh(part, pen)
            seen.add(self.value(part))
            parts[number] = part
        return self.rewritten(text, parts)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        text = self.filled(text, pen)
        parts = self.unit.parts(text)
        a, b = sorted(pen.rng.sample(range(len(parts)), 2))
        return self.unit.replace(text, b, self.copy(parts[a], parts[b], pen))
