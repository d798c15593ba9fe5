"""Units of a text that a rule counts, orders or asks something of: sentences, lines, items and others.

A unit has a function of one line for programs, and an implementation of its own for labels. New units of a
kind are inserted by the editors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from research.smol.training_rows.writing import Pen, insert_sentence, sections

Span = tuple[int, int]
Place = Literal["sentence", "line", "paragraph", "word"]
"""Where a new unit goes: into running text, on a line or in a paragraph of its own, or among the words."""


@dataclass(frozen=True)
class Unit:
    """A kind of part that a text has any number of."""

    name: str
    """The name of the program's function, and the middle of the ids of kinds."""
    source: str
    """The expression of the program's function on a text `t`; a list of texts."""
    pattern: re.Pattern[str]
    """Finds the parts in a text; the first group, if there is one, is the part itself."""
    new: Callable[[Pen], str]
    """Writes a new part."""
    place: Place = "sentence"
    always: bool = False
    """True if every text has such parts."""
    carriers: Sequence[str] = field(
        default=("See {} for the details.", "The note mentions {}.", "It was {}, I think.")
    )
    """Sentences into which a new part is written."""

    @property
    def nouns(self) -> list[tuple[str, str]]:
        """The names of one part and of several parts."""
        pairs = (line.split(" | ") for line in sections("units")[self.name])
        return [(one, many) for one, many in pairs]

    @property
    def definition(self) -> str:
        """The program's function."""
        return f"def {self.name}(t): return {self.source}"

    def spans(self, text: str) -> list[Span]:
        """Return the places of all parts in a text."""
        group = 1 if self.pattern.groups else 0
        return [match.span(group) for match in self.pattern.finditer(text) if match.group(group).strip()]

    def parts(self, text: str) -> list[str]:
        """Return all parts of a text."""
        return [text[start:end] for start, end in self.spans(text)]

    def add(self, text: str, pen: Pen, part: str | None = None) -> str:
        """Return the text with one more part."""
        part = self.new(pen) if part is None else part
        if self.place == "sentence":
            return insert_sentence(text, pen.rng.choice(self.carriers).replace("{}", part), pen.rng)
        if self.name == "headings":
            return f"{text}\n\n{pen.rng.choice(['##', '##', '#', '###'])} {part}\n\n{pen.sentence()}"
        if self.place == "paragraph":
            return f"{text}\n\n{part}"
        if self.place == "word":
            words = text.split(" ")
            words.insert(pen.rng.randint(min(1, len(words)), len(words)), part)
            return " ".join(words)
        spans = self.spans(text)
        if not spans or self.always:
            return f"{text}\n{'' if self.always else chr(10)}{self.marker(text)}{part}".strip()
        end = spans[-1][1]
        return f"{text[:end]}\n{self.marker(text)}{part}{text[end:]}"

    def marker(self, text: str) -> str:
        """Return what stands before a new part on a line of its own."""
        if self.name == "steps":
            return f"{len(self.spans(text)) + 1}. "
        if self.name != "items":
            return ""
        known = re.search(r"^[-*•] ", text, re.MULTILINE)
        return known[0] if known else "- "

    def remove(self, text: str, pen: Pen) -> str:
        """Return the text with one part less."""
        spans = self.spans(text)
        if not spans:
            return text
        start, end = pen.rng.choice(spans)
        if self.place in ("line", "paragraph") and not self.always:
            start = text.rfind("\n", 0, start) + 1
        head = text[:start].rstrip(" ") if text[end : end + 1] in (" ", ".", ",") else text[:start]
        text = f"{head}{text[end:]}"
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def replace(self, text: str, number: int, part: str) -> str:
        """Return the text with another part in the place of a part."""
        start, end = self.spans(text)[number]
        return f"{text[:start]}{part}{text[end:]}"


SENTENCES = Unit(
    "sentences",
    r'[s for s in re.split(r"(?<=[.!?])\s+", t.strip()) if s]',
    re.compile(r"\S(?:.*?[.!?](?=\s|\Z)|.*\Z)", re.DOTALL),
    lambda pen: pen.sentence(),
    "sentence",
    True,
    ("{}",),
)
LINES = Unit(
    "lines",
    '[l for l in t.split("\\n") if l.strip()]',
    re.compile(r"^[^\n]*\S[^\n]*$", re.MULTILINE),
    lambda pen: pen.sentence(),
    "line",
    True,
)
PARAGRAPHS = Unit(
    "paragraphs",
    '[p for p in t.split("\\n\\n") if p.strip()]',
    re.compile(r"[^\n](?:[^\n]|\n(?!\n))*"),
    lambda pen: f"{pen.sentence()} {pen.sentence()}",
    "paragraph",
    True,
)
WORDS = Unit(
    "words",
    r"""re.findall(r"\w[\w'-]*", t)""",
    re.compile(r"(?<![\w'-])\w[\w'-]*|(?<=[^\w'-]['-])\w[\w'-]*|(?<=^['-])\w[\w'-]*"),
    lambda pen: pen.word(),
    "word",
    True,
)
ITEMS = Unit(
    "items",
    r're.findall(r"^\s*[-*•] (.+)", t, re.M)',
    re.compile(r"^\s*[-*•] (.+)$", re.MULTILINE),
    lambda pen: pen.sentence(),
    "line",
)
HEADINGS = Unit(
    "headings",
    r're.findall(r"^#+ (.+)", t, re.M)',
    re.compile(r"^#+ (.+)$", re.MULTILINE),
    lambda pen: pen.phrase("title"),
    "paragraph",
)
STEPS = Unit(
    "steps",
    r're.findall(r"^\d+[.)] (.+)", t, re.M)',
    re.compile(r"^\d+[.)] (.+)$", re.MULTILINE),
    lambda pen: pen.sentence(),
    "line",
)
