"""Properties that compare the length of a unit with a number."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from research.smol.training_rows.kinds.properties import Arguments, Property
from research.smol.training_rows.kinds.units import SENTENCES, Unit
from research.smol.training_rows.writing import Pen


class Length(Property):
    """A number of smaller units, compared with a number."""

    counted: ClassVar[str]
    """The noun of what is counted."""
    numbers: ClassVar[Mapping[str, tuple[int, int]]]
    """The range of numbers by unit."""
    phrases = (
        ">= have at least {value} {counted}|has at least {value} {counted}",
        ">= be at least {value} {counted} long|is at least {value} {counted} long",
        ">= have {value} or more {counted}|has {value} or more {counted}",
        "<= have at most {value} {counted}|has at most {value} {counted}",
        "<= have no more than {value} {counted}|has no more than {value} {counted}",
        "<= be at most {value} {counted} long|is at most {value} {counted} long",
        "<= not exceed {value} {counted}|does not exceed {value} {counted}",
        "< have fewer than {value} {counted}|has fewer than {value} {counted}",
        "> have more than {value} {counted}|has more than {value} {counted}",
        "== have exactly {value} {counted}|has exactly {value} {counted}",
        "== consist of {value} {counted}|consists of {value} {counted}",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        low, high = self.numbers.get(unit.name, (3, 12))
        return {"value": pen.rng.randint(low, high)}

    def written(self, given: Arguments, pen: Pen) -> str:
        return str(given["value"])

    def bounds(self, given: Arguments) -> tuple[int, int]:
        """Return the smallest and the largest count."""
        n = given["value"]
        most = 10**6
        return {">=": (n, most), ">": (n + 1, most), "<=": (0, n), "<": (0, n - 1), "==": (n, n)}[
            given["sign"]
        ]

    @abstractmethod
    def count(self, part: str) -> int: ...

    @abstractmethod
    def resize(self, part: str, count: int, pen: Pen) -> str: ...

    @abstractmethod
    def length(self, part: str) -> str:
        """Return the program's expression that counts."""

    def code(self, part: str, given: Arguments) -> str:
        return f"{self.length(part)} {given['sign']} {given['value']}"

    def holds(self, part: str, given: Arguments) -> bool:
        low, high = self.bounds(given)
        return low <= self.count(part) <= high

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        low, high = self.bounds(given)
        if self.holds(part, given):
            return part
        return self.resize(part, low if self.count(part) < low else high, pen)

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        low, high = self.bounds(given)
        if not self.holds(part, given):
            return part
        if high >= 10**6 or (low > 1 and pen.chance(0.5)):
            return self.resize(part, max(1, low - pen.rng.choice([1, 1, 2])), pen)
        return self.resize(part, high + pen.rng.choice([1, 1, 2]), pen)


class WordLength(Length):
    """The number of words of a unit."""

    name = "words"
    counted = "words"
    numbers: ClassVar[Mapping[str, tuple[int, int]]] = {
        "paragraphs": (12, 60),
        "lines": (4, 20),
        "sentences": (5, 18),
        "items": (3, 12),
        "steps": (3, 12),
        "headings": (2, 6),
    }

    def length(self, part: str) -> str:
        return f"len({part}.split())"

    def count(self, part: str) -> int:
        return len(re.findall(r"\S+", part))

    def resize(self, part: str, count: int, pen: Pen) -> str:
        words = part.split(" ")
        while len(words) > max(1, count):
            del words[-2 if len(words) > 1 else -1]
        while len(words) < count:
            words.insert(
                len(words) - 1,
                pen.rng.choice(["really", "very", "also", "quite", pen.word()]),
            )
        return " ".join(words)


class CharacterLength(Length):
    """The number of characters of a unit."""

    name = "characters"
    counted = "characters"
    numbers: ClassVar[Mapping[str, tuple[int, int]]] = {
        "paragraphs": (80, 300),
        "lines": (30, 90),
        "sentences": (25, 90),
        "items": (15, 70),
        "steps": (15, 70),
        "headings": (10, 40),
        "words": (5, 11),
    }

    def length(self, part: str) -> str:
        return f"len({part})"

    def count(self, part: str) -> int:
        return sum(1 for _ in part)

    def resize(self, part: str, count: int, pen: Pen) -> str:
        if len(part) > count:
            words = part.split(" ")
            while len(words) > 2 and len(" ".join(words)) > count:
                del words[len(words) // 2]
            part = " ".join(words)
            return part if len(part) <= count else part[:count].rstrip() or part[:1]
        if " " not in part:
            return part + "".join(pen.rng.choice("aeionrst") for _ in range(count - len(part)))
        while len(part) < count:
            head, _, tail = part.rpartition(" ")
            missing = count - len(part)
            word = pen.rng.choice([one for one in pen.vocabulary if len(one) < missing] or ["a"])
            part = f"{head} {word if missing != 1 else ''} {tail}" if missing > 1 else f"{head} {tail}s"
            part = part[:count] if len(part) > count else part
        return part


class SentenceLength(Length):
    """The number of sentences of a unit."""

    name = "sentences"
    counted = "sentences"
    numbers: ClassVar[Mapping[str, tuple[int, int]]] = {
        "paragraphs": (2, 5),
        "items": (1, 2),
        "lines": (1, 3),
    }

    def uses(self) -> tuple[Unit, ...]:
        return (SENTENCES,)

    def length(self, part: str) -> str:
        return f"len(sentences({part}))"

    def count(self, part: str) -> int:
        return len(SENTENCES.spans(part))

    def resize(self, part: str, count: int, pen: Pen) -> str:
        found = SENTENCES.parts(part)[: max(1, count)]
        while len(found) < count:
            found.append(pen.sentence())
        return " ".join(found)
