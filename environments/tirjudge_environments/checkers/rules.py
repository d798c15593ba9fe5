"""Patterns of rules: literal text with named and typed fields, matched without backtracking.

`at least {n:number} words` matches "at least 60 words" with n = 60. A field is `{name}`, any text;
`{name:word}`, a text without spaces; or `{name:number}`, digits or a number as a word, from zero to twenty,
`once` or `twice`. A field in quotation marks has none of them in its text. `{{` and `}}` are braces. A name
that occurs again must have the same value. A text that a pattern can match in two ways is not matched: its
values would be a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

Value = str | int
NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
"""Numbers as words, by their value."""
_TIMES = {"once": 1, "twice": 2}
LONGEST_RULE = 2_000
"""Characters of a rule; a longer one is left to the judge."""
_DIGITS = re.compile(r"[0-9]{1,9}|[0-9]{1,3}(?:,[0-9]{3}){1,2}", re.ASCII)
_FIELD = re.compile(r"\{(?P<name>[a-z][a-z0-9_]{0,30})(?::(?P<kind>[a-z]+))?\}", re.ASCII)
_MARKS = ('""', "''", "``", "“”", "‘’", "«»")
_RESERVED = {"response", "prompt", "check"}
_MOST_FIELDS = 12


def number_of(text: str) -> int | None:
    """Return the number that digits or an English word name; None for any other text."""
    if _DIGITS.fullmatch(text):
        return int(text.replace(",", ""))
    lower = text.lower()
    return NUMBER_WORDS.index(lower) if lower in NUMBER_WORDS else _TIMES.get(lower)


_KINDS: dict[str, Callable[[str], Value | None]] = {
    "text": lambda text: text if text.strip() == text and text else None,
    "word": lambda text: text if text and not any(map(str.isspace, text)) else None,
    "number": number_of,
}


def escaped(text: str) -> str:
    """Return a text as a pattern that matches this text alone."""
    return text.replace("{", "{{").replace("}", "}}")


@dataclass(frozen=True, slots=True)
class RulePattern:
    """A parsed pattern."""

    literals: tuple[str, ...]
    """The texts around the fields: one more than there are fields."""
    fields: tuple[tuple[str, str], ...]
    """Name and kind of each field, in order."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a pattern; raises ValueError, in one line, for a text that is none."""
        literals, fields, position = [""], list[tuple[str, str]](), 0
        while position < len(text):
            if text.startswith(("{{", "}}"), position):
                literals[-1] += text[position]
                position += 2
            elif found := _FIELD.match(text, position):
                fields.append((found["name"], found["kind"] or "text"))
                literals.append("")
                position = found.end()
            elif text[position] in "{}":
                raise ValueError(
                    f"the rule has a {text[position]!r} that begins or ends no field: write {{NAME}}, "
                    f"{{NAME:{'}} or {NAME:'.join(_KINDS)}}}, and {{{{ or }}}} for a brace"
                )
            else:
                literals[-1] += text[position]
                position += 1
        pattern = cls(tuple(literals), tuple(fields))
        pattern._check(text)
        return pattern

    def _check(self, text: str) -> None:
        if not text.strip() or len(text) > LONGEST_RULE:
            raise ValueError(f"a rule has 1 to {LONGEST_RULE} characters")
        if len(self.fields) > _MOST_FIELDS:
            raise ValueError(f"a rule has at most {_MOST_FIELDS} fields")
        kinds: dict[str, str] = {}
        for name, kind in self.fields:
            if name in _RESERVED:
                raise ValueError(f"a field cannot be called {name}")
            if kind not in _KINDS:
                raise ValueError(f"{{{name}:{kind}}}: a field is {', '.join(_KINDS)}")
            if kinds.setdefault(name, kind) != kind:
                raise ValueError(f"the field {name} has two kinds")
        if not all(self.literals[1:-1]):
            raise ValueError("two fields follow each other: put text between them")
        if self.fields and not "".join(self.literals).strip():
            raise ValueError("a rule of fields alone would match any text")

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each field by its name."""
        return dict(self.fields)

    def values(self, rule: str) -> dict[str, Value] | None:
        """Return the values of the fields in a rule; None if the rule does not match, or matches in two ways.

        Takes time linear in the rule for each field, whatever the texts are.
        """
        rule, first, last = rule.strip(), self.literals[0], self.literals[-1]
        if not self.fields:
            return {} if rule == first.strip() else None
        first, last = first.lstrip(), last.rstrip()
        if len(rule) > LONGEST_RULE or len(rule) < len(first) + len(last):
            return None
        if not (rule.startswith(first) and rule.endswith(last)):
            return None
        start, end = len(first), len(rule) - len(last)
        spans = self._spans(rule, start, end)
        # With each literal at its first place and at its last place: if both are the same, there is no other.
        return (
            None if spans is None or spans != self._last_spans(rule, start, end) else self._read(rule, spans)
        )

    def _spans(self, rule: str, start: int, end: int) -> list[tuple[int, int]] | None:
        spans = []
        for literal in self.literals[1:-1]:
            # A field has at least one character.
            place = rule.find(literal, start + 1, end)
            if place < 0:
                return None
            spans.append((start, place))
            start = place + len(literal)
        return [*spans, (start, end)] if start < end else None

    def _last_spans(self, rule: str, start: int, end: int) -> list[tuple[int, int]] | None:
        spans = []
        for literal in reversed(self.literals[1:-1]):
            place = rule.rfind(literal, start, end - 1)
            if place < 0:
                return None
            spans.append((place + len(literal), end))
            end = place
        return [(start, end), *reversed(spans)] if start < end else None

    def _read(self, rule: str, spans: list[tuple[int, int]]) -> dict[str, Value] | None:
        values: dict[str, Value] = {}
        for place, ((name, kind), span) in enumerate(zip(self.fields, spans, strict=True)):
            text = rule[slice(*span)]
            marks = self.literals[place][-1:] + self.literals[place + 1][:1]
            value = None if marks in _MARKS and any(mark in text for mark in marks) else _KINDS[kind](text)
            if value is None or values.setdefault(name, value) != value:
                return None
        return values
