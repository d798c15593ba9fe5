"""Properties that a rule asks of a unit: how it begins and ends, what it holds, how long it is."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from research.smol.training_rows.families.keywords import draw_word, literal
from research.smol.training_rows.kinds.units import SENTENCES, WORDS, Unit
from research.smol.training_rows.writing import Pen

Arguments = Mapping[str, Any]

_LAST_WORD = re.compile(r"(\w+)(\W*)\Z")


class Property(ABC):
    """Something that is true or false of a unit.

    Phrases complete "Every line must ..." and "a line that ...", with a stroke between the two and `{value}` for
    the argument.
    """

    name: ClassVar[str]
    """The end of the ids of kinds."""
    phrases: ClassVar[tuple[str, ...]]

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        """Draw the arguments, given the natural text of an answer."""
        return {}

    @abstractmethod
    def code(self, part: str, given: Arguments) -> str:
        """Return the program's expression on a variable."""

    @abstractmethod
    def holds(self, part: str, given: Arguments) -> bool:
        """Return True if a part has the property, by an implementation other than the program's."""

    @abstractmethod
    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        """Return the part changed so that it has the property."""

    @abstractmethod
    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        """Return the part changed so that it lacks the property, often narrowly."""

    def uses(self) -> tuple[Unit, ...]:
        """Return the units that the expression counts."""
        return ()

    def written(self, given: Arguments, pen: Pen) -> str:
        """Return the argument as the prompt writes it."""
        value = str(given.get("value", ""))
        return pen.rng.choice(['"{}"', '"{}"', "'{}'", "{}"]).replace("{}", value)


def _word(text: str, pen: Pen) -> str:
    return draw_word(text, pen, 0.2).split()[0].strip(".,'’\"")


def _first(part: str, word: str) -> str:
    """Return the part with another first word."""
    head, _, tail = part.partition(" ")
    return f"{word} {tail}".strip() if tail else f"{word}{part[len(head.rstrip('.!?,:;')):]}"


def _head(part: str) -> str:
    return part.split()[0].strip(".,:;!?*\"'()").lower() if part.split() else ""


class StartsWithWord(Property):
    name = "start_word"
    phrases = (
        "start with {value}|starts with {value}",
        "begin with the word {value}|begins with the word {value}",
        "open with {value}|opens with {value}",
        "have {value} as its first word|has {value} as its first word",
        "start with the word {value}|starts with the word {value}",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        starts = ["Today", "Always", "Never", "First", "Note", "Remember", "Well", "Honestly", "Perhaps", "Because", "Why"]
        return {"value": pen.rng.choice(starts) if pen.chance(0.6) else _word(text, pen).capitalize()}

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.lower().startswith({literal(given['value'])}.lower())"

    def holds(self, part: str, given: Arguments) -> bool:
        return part[: len(given["value"])].casefold() == given["value"].casefold()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        if pen.chance(0.5):
            return _first(part, given["value"])
        return f"{given['value']}{pen.rng.choice([' ', ', ', ': ', ' '])}{part}"

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        bare = part[len(given["value"]) :].lstrip(" ,:") if self.holds(part, given) else part
        other = pen.rng.choice(["And", "So", "The", "Then", "Still", '"'])
        return f"{other} {bare}" if pen.chance(0.6) or len(bare) < 3 else bare[0].upper() + bare[1:]


class StartsWithLetter(Property):
    name = "start_letter"
    phrases = (
        "start with the letter {value}|starts with the letter {value}",
        "begin with the letter {value}|begins with the letter {value}",
        "have {value} as its first letter|has {value} as its first letter",
        "start with a {value}|starts with a {value}",
        "begin with {value}|begins with {value}",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": pen.rng.choice("abcdefghilmnoprstw").upper()}

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}[:1].lower() == {literal(given['value'])}.lower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return part.lower().startswith(given["value"].lower())

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        letter = given["value"].lower()
        found = [word for word in pen.vocabulary if word.startswith(letter)]
        word = pen.rng.choice(found) if found else letter + "ab"
        if part.islower() or " " not in part:
            return word
        return _first(part, word.capitalize()) if pen.chance(0.6) else f"{word.capitalize()} and {part}"

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        other = pen.rng.choice([word for word in pen.vocabulary if not word.startswith(given["value"].lower())])
        return other if " " not in part else _first(part, other.capitalize())


class EndsWithMark(Property):
    name = "end_mark"
    phrases = (
        "end with {value}|ends with {value}",
        "close with {value}|closes with {value}",
        "have {value} at its end|has {value} at its end",
        "finish with {value}|finishes with {value}",
        "have {value} as its last character|has {value} as its last character",
    )
    marks: ClassVar[Mapping[str, str]] = {
        "?": "a question mark", "!": "an exclamation mark", ".": "a full stop", ";": "a semicolon", ":": "a colon", "...": "an ellipsis (...)"
    }

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        marks = ["?", "!", "!", "..."] if unit.name == "sentences" else list(self.marks)
        return {"value": pen.rng.choice(marks)}

    def written(self, given: Arguments, pen: Pen) -> str:
        mark = given["value"]
        return pen.rng.choice([self.marks[mark], self.marks[mark], f'"{mark}"', mark])

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.strip().endswith({literal(given['value'])})"

    def holds(self, part: str, given: Arguments) -> bool:
        return part.rstrip()[-len(given["value"]) :] == given["value"]

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.rstrip(" .!?;:,…") + given["value"]

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        others = [mark for mark in (".", "!", "?") if mark != given["value"]]
        return part.rstrip(" .!?;:,…") + pen.rng.choice(others)


class Contains(Property):
    name = "contains"
    phrases = (
        "contain {value}|contains {value}",
        "mention {value}|mentions {value}",
        "include the word {value}|includes the word {value}",
        "use the word {value}|uses the word {value}",
        "have the word {value} in it|has the word {value} in it",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": _word(text, pen)}

    def code(self, part: str, given: Arguments) -> str:
        return f"{literal(given['value'])}.lower() in {part}.lower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return re.search(re.escape(given["value"]), part, re.IGNORECASE) is not None

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        words = part.split(" ")
        words.insert(pen.rng.randint(1, max(1, len(words) - 1)), given["value"])
        return " ".join(words)

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return re.sub(re.escape(given["value"]), pen.rng.choice(["it", "this", "something"]), part, flags=re.IGNORECASE)


class Lacks(Contains):
    name = "lacks"
    phrases = (
        "not contain {value}|does not contain {value}",
        "avoid the word {value}|avoids the word {value}",
        "not use {value}|does not use {value}",
        "do without {value}|does without {value}",
        "leave out {value}|leaves out {value}",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": draw_word(text, pen, 0.8).split()[0]}

    def code(self, part: str, given: Arguments) -> str:
        return f"{literal(given['value'])}.lower() not in {part}.lower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return not super().holds(part, given)

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return super().spoil(part, given, pen)

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return super().make(part, given, pen)


class HasDigit(Property):
    name = "digit"
    phrases = (
        "contain a number|contains a number",
        "include a number in digits|includes a number in digits",
        "have at least one digit|has at least one digit",
        "mention a number (as digits)|mentions a number (as digits)",
        "contain a digit|contains a digit",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"any(c.isdigit() for c in {part})"

    def holds(self, part: str, given: Arguments) -> bool:
        return re.search(r"\d", part) is not None

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        words = part.split(" ")
        words.insert(pen.rng.randint(1, max(1, len(words) - 1)), str(pen.rng.randint(2, 90)))
        return " ".join(words)

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        names = ["two", "three", "seven", "many"]
        return re.sub(r"\d+", lambda match: pen.rng.choice(names), part)


class NoDigit(HasDigit):
    name = "no_digit"
    phrases = (
        "contain no digits|contains no digits",
        "not contain any number in digits|does not contain any number in digits",
        "be free of digits|is free of digits",
        "do without digits|does without digits",
        "have no numerals in it|has no numerals in it",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"not any(c.isdigit() for c in {part})"

    def holds(self, part: str, given: Arguments) -> bool:
        return not super().holds(part, given)

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return super().spoil(part, given, pen)

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return super().make(part, given, pen)


class HasMark(Property):
    name = "mark"
    phrases = (
        "contain {value}|contains {value}",
        "include {value}|includes {value}",
        "have {value} in it|has {value} in it",
        "use {value} somewhere|uses {value} somewhere",
        "show {value}|shows {value}",
    )
    marks: ClassVar[Mapping[str, str]] = {",": "a comma", ":": "a colon", "-": "a hyphen", "(": "an opening parenthesis", '"': "a double quotation mark"}

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": pen.rng.choice(list(self.marks))}

    def written(self, given: Arguments, pen: Pen) -> str:
        mark = given["value"]
        return pen.rng.choice([self.marks[mark], self.marks[mark], f"{self.marks[mark]} ({mark})"])

    def code(self, part: str, given: Arguments) -> str:
        return f"{literal(given['value'])} in {part}"

    def holds(self, part: str, given: Arguments) -> bool:
        return part.count(given["value"]) > 0

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        added = {",": ",", ":": ":", "-": " -", "(": " (as usual)", '"': ' "really"'}[given["value"]]
        return re.sub(r"(?<=\w)(?=\s|\W*\Z)", added, part, count=1)

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.replace(given["value"], " " if given["value"] == "-" else "")


class NoMark(HasMark):
    name = "no_mark"
    phrases = (
        "contain no {value}|contains no {value}",
        "not contain any {value}|does not contain any {value}",
        "be free of any {value}|is free of any {value}",
        "do without a {value}|does without a {value}",
        "never use a {value}|never uses a {value}",
    )
    marks: ClassVar[Mapping[str, str]] = {",": "comma", ":": "colon", "-": "hyphen", "?": "question mark", "!": "exclamation mark"}

    def code(self, part: str, given: Arguments) -> str:
        return f"{literal(given['value'])} not in {part}"

    def holds(self, part: str, given: Arguments) -> bool:
        return part.count(given["value"]) == 0

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.replace(given["value"], "." if given["value"] in "?!" else " " if given["value"] == "-" else "")

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        mark = given["value"]
        if mark in "?!":
            return part.rstrip(" .!?") + mark
        return re.sub(r"(?<=\w)(?=\s|\W*\Z)", " -" if mark == "-" else mark, part, count=1)


class Capitalised(Property):
    name = "capital"
    phrases = (
        "start with a capital letter|starts with a capital letter",
        "begin with an uppercase letter|begins with an uppercase letter",
        "be capitalised|is capitalised",
        "have a capital as its first character|has a capital as its first character",
        "open with an upper-case letter|opens with an upper-case letter",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}[:1].isupper()"

    def holds(self, part: str, given: Arguments) -> bool:
        return bool(part) and part[0] != part[0].lower()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        part = part.lstrip("*\"'(-#> 0123456789.)")
        return part[:1].upper() + part[1:]

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return part[:1].lower() + part[1:]


class SmallFirst(Capitalised):
    name = "small"
    phrases = (
        "start with a lowercase letter|starts with a lowercase letter",
        "begin with a small letter|begins with a small letter",
        "have a lower-case letter at its start|has a lower-case letter at its start",
        "open with a small letter|opens with a small letter",
        "not be capitalised but start with a small letter|is not capitalised but starts with a small letter",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}[:1].islower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return bool(part) and part[0] != part[0].upper()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        part = part.lstrip("*\"'(-#> 0123456789.)")
        return part[:1].lower() + part[1:]

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return part[:1].upper() + part[1:]


class Upper(Property):
    name = "upper"
    phrases = (
        "be in capital letters|is in capital letters",
        "be written in all caps|is written in all caps",
        "use uppercase letters only|uses uppercase letters only",
        "be entirely uppercase|is entirely uppercase",
        "be shouted in CAPITALS|is shouted in CAPITALS",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.isupper()"

    def holds(self, part: str, given: Arguments) -> bool:
        return part == part.upper() and part != part.lower()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.upper()

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.capitalize() if pen.chance(0.5) else part[:-4] + part[-4:].lower()


class Lower(Property):
    name = "lower"
    phrases = (
        "be in lowercase|is in lowercase",
        "be written in small letters|is written in small letters",
        "use lowercase letters only|uses lowercase letters only",
        "have no capital letters|has no capital letters",
        "be entirely lowercase|is entirely lowercase",
    )

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.islower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return part == part.lower() and part != part.upper()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.lower()

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return re.sub(r"[^\W\d_]", lambda match: match[0].upper(), part, count=1)


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
        return {">=": (n, most), ">": (n + 1, most), "<=": (0, n), "<": (0, n - 1), "==": (n, n)}[given["sign"]]

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
        "paragraphs": (12, 60), "lines": (4, 20), "sentences": (5, 18), "items": (3, 12), "steps": (3, 12), "headings": (2, 6)
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
            words.insert(len(words) - 1, pen.rng.choice(["really", "very", "also", "quite", pen.rng.choice(pen.vocabulary)]))
        return " ".join(words)


class CharacterLength(Length):
    """The number of characters of a unit."""

    name = "characters"
    counted = "characters"
    numbers: ClassVar[Mapping[str, tuple[int, int]]] = {
        "paragraphs": (80, 300), "lines": (30, 90), "sentences": (25, 90), "items": (15, 70), "steps": (15, 70), "headings": (10, 40), "words": (5, 11)
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
    numbers: ClassVar[Mapping[str, tuple[int, int]]] = {"paragraphs": (2, 5), "items": (1, 2), "lines": (1, 3)}

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


class IsWord(Property):
    """The unit is a given word."""

    name = "is_word"
    phrases = (
        "be {value}|is {value}",
        "be the word {value}|is the word {value}",
        "read {value}|reads {value}",
        "be exactly {value}|is exactly {value}",
        "be nothing else than {value}|is nothing else than {value}",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": _word(text, pen)}

    def written(self, given: Arguments, pen: Pen) -> str:
        return pen.rng.choice(['"{}"', "'{}'"]).replace("{}", given["value"])

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.lower() == {literal(given['value'])}.lower()"

    def holds(self, part: str, given: Arguments) -> bool:
        return part.casefold() == given["value"].casefold()

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return str(given["value"])

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return pen.rng.choice([pen.rng.choice(pen.vocabulary), given["value"] + "s", f"{given['value']} indeed"])


class EndsWithLetters(Property):
    name = "suffix"
    phrases = (
        "end in {value}|ends in {value}",
        "end with {value}|ends with {value}",
        "end with the letters {value}|ends with the letters {value}",
        "have the ending {value}|has the ending {value}",
        "finish on the letters {value}|finishes on the letters {value}",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": pen.rng.choice(["ing", "ed", "ly", "er", "tion", "s", "e", "y"])}

    def code(self, part: str, given: Arguments) -> str:
        return f"{part}.lower().endswith({literal(given['value'])})"

    def holds(self, part: str, given: Arguments) -> bool:
        return part[-len(given["value"]) :].lower() == given["value"]

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        found = [word for word in pen.vocabulary if word.endswith(given["value"])]
        return pen.rng.choice(found) if found else part + given["value"]

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        return pen.rng.choice([word for word in pen.vocabulary if not word.endswith(given["value"])])


class LastWord(Property):
    name = "end_word"
    phrases = (
        "end with the word {value}|ends with the word {value}",
        "have {value} as its last word|has {value} as its last word",
        "close with the word {value}|closes with the word {value}",
        "finish with the word {value}|finishes with the word {value}",
        "have the word {value} at the end|has the word {value} at the end",
    )

    def draw(self, unit: Unit, text: str, pen: Pen) -> dict[str, Any]:
        return {"value": _word(text, pen)}

    def uses(self) -> tuple[Unit, ...]:
        return (WORDS,)

    def code(self, part: str, given: Arguments) -> str:
        return f"words({part}.lower())[-1:] == [{literal(given['value'])}.lower()]"

    def holds(self, part: str, given: Arguments) -> bool:
        return [one.casefold() for one in WORDS.parts(part)[-1:]] == [given["value"].casefold()]

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        match = _LAST_WORD.search(part)
        end = match[2] if match else "."
        body = part[: match.start()] if match and pen.chance(0.5) else f"{part.rstrip(' .!?')} "
        return f"{body}{given['value']}{end}"

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        match = _LAST_WORD.search(part)
        return f"{part[: match.start()]}{pen.rng.choice(pen.vocabulary)}{match[2]}" if match else part


class HasInner(Property):
    """The unit holds at least one token of some kind, such as a link."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.name = unit.name  # type: ignore[misc]
        self.phrases = tuple(  # type: ignore[misc]
            f"{base} {article(noun.split('|')[0])}|{third} {article(noun.split('|')[0])}"
            for noun in unit.nouns
            for base, third in (("contain", "contains"), ("include", "includes"), ("have", "has"), ("show", "shows"), ("give", "gives"))
        )

    def uses(self) -> tuple[Unit, ...]:
        return (self.unit,)

    def code(self, part: str, given: Arguments) -> str:
        return f"len({self.unit.name}({part})) > 0"

    def holds(self, part: str, given: Arguments) -> bool:
        return bool(self.unit.spans(part))

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        match = _LAST_WORD.search(part)
        end = match[2] if match else ""
        body = part[: len(part) - len(end)] if end else part
        return f"{body} {self.unit.new(pen)}{end}"

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        while self.unit.spans(part):
            part = self.unit.replace(part, 0, "it")
        return part


def article(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[0].lower() in 'aeiou' and not noun.startswith(('URL', 'user')) else 'a'} {noun}"


class Begins(Property):
    """The unit begins with a text that its own phrases name, such as the year of a date."""

    def __init__(self, name: str, choices: Mapping[str, str], phrases: Sequence[str], *, end: bool = False) -> None:
        """`choices` are the texts and how a prompt names them; with `end` the unit ends with it."""
        self.name, self.choices, self.phrases, self.end = name, choices, tuple(phrases), end  # type: ignore[misc]

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
        other = next((one for one in self.choices if (part.endswith(one) if self.end else part.startswith(one))), None)
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

    def __init__(self, name: str, source: str, test: Callable[[int, Arguments], bool], phrases: Sequence[str],
                 draw: Callable[[Pen], dict[str, Any]] = lambda pen: {}) -> None:
        """`source` is the expression with `{}` for the integer and names of arguments in braces."""
        self.name, self.source, self.test, self.phrases, self._draw = name, source, test, tuple(phrases), draw  # type: ignore[misc]

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
        found = sorted((abs(one - number), one) for one in range(max(1, number - 60), number + 60) if self.test(one, given) == keep)
        if not found:
            found = [(0, one) for one in range(1, 2100) if self.test(one, given) == keep]
        return str(pen.rng.choice(found[:3])[1])


class StartsWithPattern(Property):
    """The unit starts with a clock time, an emoji or another form."""

    def __init__(self, name: str, source: str, test: str, phrases: Sequence[str], new: Callable[[Pen], str], wrong: Callable[[Pen], str]) -> None:
        self.name, self.source, self.test, self.phrases, self.new, self.wrong = name, source, re.compile(test), tuple(phrases), new, wrong  # type: ignore[misc]

    def code(self, part: str, given: Arguments) -> str:
        return self.source.replace("{}", part)

    def holds(self, part: str, given: Arguments) -> bool:
        return self.test.match(part) is not None

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return f"{self.new(pen)} {part}"

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        bare = self.test.sub("", part, count=1).strip()
        return f"{self.wrong(pen)} {bare}".strip()
