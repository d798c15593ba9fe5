"""The interface of a constraint family: arguments, edits that follow or break it, and its program."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from research.smol.training_rows.writing import Pen, sections
from tirjudge_environments.instruction_checks import Verifier, open_verifier

INFINITE = 10**9

Arguments = dict[str, Any]
Form = Literal["sentence", "fragment", "clause", "tail"]
"""A wording that stands alone, continues the request, follows "your response should", or follows the wording
of a number of parts, such as "each of which"."""
_SIGNS = (">=", "<=", "==", "=0", "=b", ">b", "..", ">", "<")


def split_sign(line: str) -> tuple[str, str]:
    """Return the relation in front of a wording, empty without one, and the wording."""
    sign = next((one for one in _SIGNS if line.startswith(f"{one} ")), "")
    return sign, line.removeprefix(sign).lstrip()


class Family(ABC):
    """One of the 25 instructions of IFEval."""

    id: str
    order: int
    """Edits of families with a small number come first: content, then layout, then the outermost marks."""
    setup: str = ""
    """A function that the program defines before `check`."""

    @abstractmethod
    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        """Draw arguments for a prompt, given the natural text of an answer."""

    @abstractmethod
    def checks(self, given: Arguments) -> Sequence[Verifier]:
        """Return the verifiers that must all hold."""

    @abstractmethod
    def expression(self, given: Arguments) -> str:
        """Return the expression of the program on the response `r`."""

    @abstractmethod
    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        """Return the text edited so that it follows the constraint."""

    @abstractmethod
    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        """Return the text edited so that it breaks the constraint."""

    def wordings(self, form: Form | None = None) -> Sequence[tuple[str, str]]:
        """Return the wordings, each with its relation (empty for a family without a number).

        Without a form they are its sentences and fragments. A family may have no fragment and no clause.
        """
        lines = sections("clauses").get(self.id, ()) if form == "clause" else sections("wordings")[self.id]
        found = [split_sign(line) for line in lines]
        return [one for one in found if form is None or one[1][0].islower() == (form != "sentence")]

    def definitions(self, given: Arguments) -> Sequence[str]:
        """Return the functions that the program defines before `check`."""
        return (self.setup,) if self.setup else ()

    def holds(self, text: str, given: Arguments) -> bool:
        """Return True if all verifiers hold; families with slow verifiers may approximate here."""
        return all(check.holds(text) for check in self.checks(given))

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        """Return the values of the slots of a wording."""
        return {}


@dataclass(frozen=True)
class Constraint:
    """A family with its arguments and its wording in one prompt."""

    family: Family
    given: Arguments = field(hash=False)
    wording: str
    form: Form = "sentence"

    def holds(self, text: str) -> bool:
        """Return True if the text follows the constraint, by the family's own, possibly quick check."""
        return bool(text.strip()) and self.family.holds(text, self.given)

    def verified(self, text: str) -> bool:
        """Return True if the text is not empty and every verifier holds."""
        return bool(text.strip()) and all(check.holds(text) for check in self.family.checks(self.given))

    def edit(self, text: str, keep: bool, pen: Pen) -> str:
        """Return the text, changed only if it does not yet follow (or break) the constraint as wanted."""
        if self.holds(text) == keep:
            return text
        edit = self.family.follow if keep else self.family.violate
        return edit(text, self.given, pen)


@dataclass(frozen=True)
class Holds:
    """A verifier that is a function of the response."""

    check: Callable[[str], bool]

    def holds(self, response: str) -> bool:
        """Return True if the response follows the instruction."""
        return self.check(response)


class CountFamily(Family):
    """A family that compares a count with a number."""

    argument: ClassVar[str]
    """The verifier's name for the number."""
    relation_argument: ClassVar[str] = "relation"
    """The verifier's name for the relation; empty if the verifier knows only one."""
    counted: ClassVar[str]
    """The expression that counts in the response `r`."""

    @abstractmethod
    def count(self, text: str, given: Arguments) -> int: ...

    @abstractmethod
    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        """Return the text with a larger count, by one where possible."""

    @abstractmethod
    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        """Return the text with a smaller count, by one where possible."""

    @abstractmethod
    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int: ...

    def others(self, text: str, pen: Pen) -> Arguments:
        """Draw the arguments other than the number."""
        return {}

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        given = self.others(text, pen) | {"relation": relation}
        number = self.number(relation, text, given, pen)
        given["n"] = number
        if relation == "..":
            given["b"] = number + max(10, round(number * pen.rng.choice([0.2, 0.25, 0.5]) / 5) * 5)
        return given

    def bounds(self, given: Arguments) -> tuple[int, int]:
        """Return the smallest and the largest count that follow the constraint."""
        n = given["n"]
        return {
            ">=": (n, INFINITE),
            ">": (n + 1, INFINITE),
            "<": (0, n - 1),
            "<=": (0, n),
            "==": (n, n),
            "=0": (0, 0),
            "..": (n, given.get("b", n)),
        }[given["relation"]]

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        low, high = self.bounds(given)
        base = self.verifier_arguments(given)
        if not self.relation_argument:
            return (open_verifier(self.id, **base, **{self.argument: low}),)
        wanted = ([("at least", low)] if low else []) + ([("less than", high + 1)] if high < INFINITE else [])
        return [
            open_verifier(self.id, **base, **{self.argument: limit, self.relation_argument: relation})
            for relation, limit in wanted
        ]

    def holds(self, text: str, given: Arguments) -> bool:
        low, high = self.bounds(given)
        return low <= self.count(text, given) <= high

    def verifier_arguments(self, given: Arguments) -> Arguments:
        """Return the verifier's arguments other than the number and the relation."""
        return {}

    def expression(self, given: Arguments) -> str:
        counted, n = self.counted_in(given), given["n"]
        if given["relation"] == "..":
            return f"{n} <= {counted} <= {given['b']}"
        if given["relation"] == "=0":
            return f"{counted} == 0"
        return f"{counted} {given['relation']} {n}"

    def counted_in(self, given: Arguments) -> str:
        """Return the expression that counts, with the arguments filled in."""
        return self.counted

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        low, high = self.bounds(given)
        if high >= INFINITE and pen.chance(0.5):
            low += pen.rng.randint(0, max(1, low // 4))
        if self.count(text, given) < low:
            return self._step(text, given, pen, up=low)
        return self._step(text, given, pen, down=high)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        low, high = self.bounds(given)
        gap = 1 if pen.chance(0.6) else pen.rng.randint(1, max(2, low // 3 if low else high // 3))
        if high >= INFINITE or (low > 0 and pen.chance(0.5)):
            return self._step(text, given, pen, down=max(0, low - gap))
        return self._step(text, given, pen, up=high + gap)

    def _step(self, text: str, given: Arguments, pen: Pen, *, up: int = -1, down: int = INFINITE) -> str:
        for _ in range(200):
            count = self.count(text, given)
            changed = text
            if count < up:
                changed = self.add(text, given, pen)
            elif count > down:
                changed = self.remove(text, given, pen)
            if changed == text:
                break
            text = changed
        return text

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        n, b = given["n"], given.get("b", 0)
        written = NUMBERS[n] if n < len(NUMBERS) and rng.random() < 0.35 else str(n)
        return {"n": written, "d": str(n), "a": str(n), "b": str(b)}


NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen"),
)
