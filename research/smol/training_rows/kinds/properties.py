"""Properties that a rule asks of a unit: how it begins and ends, what it holds, its case."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from research.smol.training_rows.families.keywords import draw_word, literal
from research.smol.training_rows.kinds.units import WORDS, Unit
from research.smol.training_rows.writing import Pen

Arguments = Mapping[str, Any]
_LAST_WORD = re.compile(r"(\w+)(\W*)\Z")


class Property(ABC):
    """Something that is true or false of a unit.

    Phrases complete "Every line must ..." and "a line that ...", with a stroke between the two. `{value}` is
    the argument.
    """

    name: str
    """The end of the ids of kinds."""
    phrases: tuple[str, ...]

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
    return f"{word} {tail}".strip() if tail else f"{word}{part[len(head.rstrip('.!?,:;')) :]}"


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
        starts = [
            "Today",
            "Always",
            "Never",
            "First",
            "Note",
            "Remember",
            "Well",
            "Honestly",
            "Perhaps",
            "Because",
            "Why",
        ]
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
        other = pen.rng.choice(
            [word for word in pen.vocabulary if not word.startswith(given["value"].lower())]
        )
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
        "?": "a question mark",
        "!": "an exclamation mark",
        ".": "a full stop",
        ";": "a semicolon",
        ":": "a colon",
        "...": "an ellipsis (...)",
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
        return re.sub(
            re.escape(given["value"]), pen.rng.choice(["it", "this", "something"]), part, flags=re.IGNORECASE
        )


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
    marks: ClassVar[Mapping[str, str]] = {
        ",": "a comma",
        ":": "a colon",
        "-": "a hyphen",
        "(": "an opening parenthesis",
        '"': "a double quotation mark",
    }

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
    marks: ClassVar[Mapping[str, str]] = {
        ",": "comma",
        ":": "colon",
        "-": "hyphen",
        "?": "question mark",
        "!": "exclamation mark",
    }

    def code(self, part: str, given: Arguments) -> str:
        return f"{literal(given['value'])} not in {part}"

    def holds(self, part: str, given: Arguments) -> bool:
        return part.count(given["value"]) == 0

    def make(self, part: str, given: Arguments, pen: Pen) -> str:
        return part.replace(
            given["value"], "." if given["value"] in "?!" else " " if given["value"] == "-" else ""
        )

    def spoil(self, part: str, given: Arguments, pen: Pen) -> str:
        mark = given["value"]
        if mark in "?!":
            return part.rstrip(" .!?") + mark
        return re.sub(r"(?<=\w)(?=\s|\W*\Z)", " -" if mark == "-" else mark, part, count=1)


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
        return pen.rng.choice([pen.word(), given["value"] + "s", f"{given['value']} indeed"])


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
        return f"{part[: match.start()]}{pen.word()}{match[2]}" if match else part


class HasInner(Property):
    """The unit holds at least one token of some kind, such as a link."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.name = unit.name
        self.phrases = tuple(
            f"{base} {article(noun)}|{third} {article(noun)}"
            for noun, _ in unit.nouns
            for base, third in (
                ("contain", "contains"),
                ("include", "includes"),
                ("have", "has"),
                ("show", "shows"),
                ("give", "gives"),
            )
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
