"""Answers composed from the texts of this package, and the edits of prose that the families share."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_BOUNDARY = re.compile(r"(?<=[.!?])\s+")
_NOT_PROSE = re.compile(r"\s*([-*#>|<{}\[\]\"]|\d+[.)]|\*\*\*|$)")


@cache
def sections(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the lines of a text file of this package by the heading of their section."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for raw in files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8").splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]") and not _holds_a_bracket(line):
            lines = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return MappingProxyType({heading: tuple(one) for heading, one in found.items()})


def _holds_a_bracket(line: str) -> bool:
    # A heading has no bracket of its own.
    return "[" in line[1:]


@dataclass
class Pen:
    """A source of sentences about one topic, with its own random numbers."""

    rng: random.Random
    topic: str
    area: str
    language: str = "English"
    vocabulary: Sequence[str] = ()
    _left: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """Return a sentence about the topic; repeats none until all were used."""
        if not self._left:
            self._left = list(self._bank())
            self.rng.shuffle(self._left)
        return self._left.pop().replace("{topic}", self.topic)

    def opening(self) -> str:
        """Return a first sentence that names the topic."""
        if self.language != "English":
            return self.sentence()
        text = self.phrase("openings").replace("{topic}", self.topic)
        return text[0].upper() + text[1:]

    def phrase(self, kind: str) -> str:
        """Return one of the phrases of a kind."""
        return self.rng.choice(sections("phrases")[kind])

    def word(self) -> str:
        """Return a word of the vocabulary."""
        return self.rng.choice(self.vocabulary)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def _bank(self) -> Sequence[str]:
        if self.language != "English":
            return language_sentences()[self.language]
        own = [line for line in sections("topics").get(self.area, ()) if not line.startswith("t:")]
        general = self.rng.sample(sections("phrases")["general"], 10)
        return [*own, *general]


def language_sentences() -> dict[str, tuple[str, ...]]:
    """Return the sentences of each language by its English name."""
    return {heading.split("|")[1].strip(): lines for heading, lines in sections("languages").items()}


def compose(pen: Pen, genre: str, words: int) -> str:
    """Return an answer of about this many words, in a layout that language models use for the genre."""
    if genre == "list":
        return _as_list(pen, words)
    if genre == "letter":
        return _as_letter(pen, words)
    if genre == "question":
        return _as_opinion(pen, words)
    paragraphs = prose(pen, words)
    if genre == "story" and pen.chance(0.4):
        return "\n".join(sentence for part in paragraphs for sentence in sentences(part))
    if pen.chance(0.2):
        title = pen.phrase("title")
        paragraphs.insert(0, pen.rng.choice([f"# {title}", f"**{title}**", title]))
    if pen.chance(0.12) and len(paragraphs) > 2:
        paragraphs = [f"## {pen.phrase('title')}\n\n{part}" for part in paragraphs]
    return "\n\n".join(paragraphs)


def prose(pen: Pen, words: int) -> list[str]:
    """Return paragraphs of about this many words together."""
    found = [pen.opening()]
    while sum(len(one.split()) for one in found) < words:
        found.append(pen.sentence())
    size = pen.rng.choice([2, 3, 3, 4, 5])
    return [" ".join(found[start : start + size]) for start in range(0, len(found), size)]


def sentences(text: str) -> list[str]:
    """Split prose after full stops, question and exclamation marks."""
    return [part for part in _BOUNDARY.split(text.strip()) if part]


def insert_sentence(text: str, sentence: str, rng: random.Random) -> str:
    """Insert a sentence into a line of prose, if possible neither as the text's first nor as its last one."""
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if is_prose(line)]
    if not places:
        return f"{text}\n\n{sentence}" if text.strip() else sentence
    number = rng.choice(places)
    parts = sentences(lines[number])
    first = 1
    last = len(parts) - 1 if number == places[-1] and len(parts) > 1 else len(parts)
    parts.insert(rng.randint(min(first, last), last), sentence)
    lines[number] = " ".join(parts)
    return "\n".join(lines)


def remove_sentence(text: str, rng: random.Random) -> str:
    """Remove a sentence of prose, neither the first nor the last of the text while there are others."""
    lines = text.split("\n")
    places = [
        (number, place)
        for number, line in enumerate(lines)
        if is_prose(line)
        for place in range(len(sentences(line)))
    ]
    if len(places) < 2:
        return text
    number, place = rng.choice(places[1:-1] or places[1:])
    parts = sentences(lines[number])
    del parts[place]
    lines[number] = " ".join(parts)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def is_prose(line: str) -> bool:
    """Return True for a line of running text, False for headings, list items and separators."""
    return not _NOT_PROSE.match(line) and len(line.split()) > 2


def regroup(text: str, parts: int, pen: Pen) -> list[str]:
    """Return the text's prose as a number of paragraphs, with new sentences if it has too few."""
    found = [
        sentence
        for line in text.split("\n")
        if not re.fullmatch(r"[\s*#-]*", line)
        for sentence in sentences(line.strip(" *#-"))
    ]
    while len(found) < parts:
        found.append(pen.sentence())
    cuts = sorted(pen.rng.sample(range(1, len(found)), parts - 1)) if parts > 1 else []
    return [" ".join(found[a:b]) for a, b in zip([0, *cuts], [*cuts, len(found)], strict=True)]


def _as_list(pen: Pen, words: int) -> str:
    count = max(2, min(12, words // pen.rng.randint(10, 22)))
    mark = pen.rng.choice(["- {}", "* {}", "{n}. {}", "{n}. {}", "{n}. **{t}**: {}"])
    items = [
        mark.replace("{n}", str(n)).replace("{t}", pen.phrase("title")).replace("{}", pen.sentence())
        for n in range(1, count + 1)
    ]
    parts = [pen.opening(), ("\n" if pen.chance(0.7) else "\n\n").join(items)]
    if pen.chance(0.6):
        parts.append(" ".join(pen.sentence() for _ in range(pen.rng.randint(1, 3))))
    return "\n\n".join(parts)


def _as_letter(pen: Pen, words: int) -> str:
    who = pen.rng.choice(
        ["Maria", "Mr Olsen", "team", "Sir or Madam", "Priya", "Tom", "neighbours", "friends"]
    )
    name = pen.rng.choice(["Anna", "Jonas Weber", "Your colleague", "Sam", "Lucy Tran", "The committee"])
    close = pen.rng.choice(["Best regards", "Kind regards", "Yours sincerely", "Many thanks", "Warmly"])
    parts = [f"Dear {who},", *prose(pen, max(15, words - 10)), f"{close},\n{name}"]
    if pen.chance(0.4):
        parts.insert(0, f"Subject: {pen.phrase('title')}")
    return "\n\n".join(parts)


def _as_opinion(pen: Pen, words: int) -> str:
    start = pen.rng.choice(["Yes.", "No.", "It depends.", "Maybe.", "I think so.", "Probably not.", ""])
    parts = [f"{start} {pen.phrase('reasons')}".strip()]
    if words > 40 and pen.chance(0.7):
        parts += prose(pen, words - 20)
    return "\n\n".join(parts)
