"""Passages of a response that an edit can remove, replace or insert: sentences, words and donated sentences.

Steps of an edit grow: each generator yields texts with one more change, so that the first text that a checker
accepts is the smallest edit of its kind. None of this is shared with the editors that made training data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

Span = tuple[int, int]

_SENTENCE = re.compile(r"[^\s.!?][^.!?\n]*[.!?]+[\"')\]*]*(?=\s|$)")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def sentences(text: str) -> list[Span]:
    """Return the sentences that end with a mark, in order; headings without one are left out."""
    return [match.span() for match in _SENTENCE.finditer(text) if match.end() - match.start() > 12]


def words(text: str, shortest: int = 1) -> list[Span]:
    """Return the words of at least a length, in order."""
    return [match.span() for match in _WORD.finditer(text) if match.end() - match.start() >= shortest]


def matches(pattern: str, text: str, flags: re.RegexFlag = re.IGNORECASE) -> list[Span]:
    """Return the non-empty matches of a pattern, in order."""
    return [match.span() for match in re.finditer(pattern, text, flags) if match.end() > match.start()]


def growing(spans: Sequence[Span], draw: Random) -> Iterator[list[Span]]:
    """Yield more and more of the spans: one, two, ..., all; which ones come first is drawn."""
    order = list(spans)
    draw.shuffle(order)
    for count in range(1, len(order) + 1):
        yield sorted(order[:count])


def substitute(text: str, spans: Iterable[Span], new: Callable[[str], str]) -> str:
    """Return the text with each span replaced by `new` of its text; spans must not overlap."""
    parts, end = [], 0
    for start, stop in sorted(spans):
        parts += [text[end:start], new(text[start:stop])]
        end = stop
    return "".join([*parts, text[end:]])


def replacing(text: str, spans: Sequence[Span], new: Callable[[str], str], draw: Random) -> Iterator[str]:
    """Yield the text with more and more of its spans replaced."""
    for some in growing(spans, draw):
        yield substitute(text, some, new)


def removing(text: str, spans: Sequence[Span], draw: Random) -> Iterator[str]:
    """Yield the text without more and more of its spans; the space after a removed one goes too."""
    for some in growing(spans, draw):
        yield substitute(text, [(start, _behind(text, end)) for start, end in some], lambda _: "").strip(" ")


def inserting(text: str, new: Iterable[str], draw: Random) -> Iterator[str]:
    """Yield the text with more and more sentences inserted behind sentences of its own."""
    for sentence in new:
        places = [end for _, end in sentences(text)] or [len(text.rstrip())]
        # The last sentence is often a phrase that the prompt asks for.
        place = draw.choice(places[:-1] or places)
        text = f"{text[:place]} {sentence}{text[place:]}"
        yield text


def _behind(text: str, end: int) -> int:
    return end + 1 if text[end : end + 1] == " " else end


def sentence_texts(texts: Iterable[str]) -> list[str]:
    """Return plain English sentences of 6 to 16 words, without duplicates: the donors of insertions."""
    found: dict[str, None] = {}
    for text in texts:
        for start, end in sentences(text):
            sentence = text[start:end]
            plain = re.fullmatch(r"[A-Z][^*<>\[\]{}#\"]+[.!?]", sentence)
            if plain and sentence.isascii() and 6 <= len(sentence.split()) <= 16:
                found[sentence] = None
    return list(found)
