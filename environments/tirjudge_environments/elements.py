"""Elements `<name> ... </name>` of a judge's answer, read in linear time wherever they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_THINKING = "think"


@dataclass(frozen=True, slots=True)
class Element:
    """An opening tag, its closing tag, and what stands between. Offsets are into the text."""

    body: str
    """Stripped; it holds no tag of the same name."""
    start: int
    end: int


def elements(text: str, name: str) -> tuple[Element, ...]:
    """The elements of this name in order; of nested ones the innermost, and none that is not closed."""
    found = []
    opened: re.Match[str] | None = None
    for tag in _tags(name).finditer(text):
        if not tag[1]:
            opened = tag
        elif opened is not None:
            body = text[opened.end() : tag.start()].strip()
            found.append(Element(body, opened.start(), tag.end()))
            opened = None
    return tuple(found)


def tag_count(text: str, name: str) -> tuple[int, int]:
    """How many `<name>` and how many `</name>` the text has."""
    return text.count(f"<{name}>"), text.count(f"</{name}>")


def behind_thinking(text: str) -> str | None:
    """What follows the last `</think>`; the whole text of a judge that did not think aloud.

    None when the thinking was begun and not closed: what looks like an answer there is a thought.
    """
    return behind(text, _THINKING)


def behind(text: str, name: str) -> str | None:
    """The same for any part of an answer that comes before the verdict: `plan`, `execution`."""
    head, closed, rest = text.rpartition(f"</{name}>")
    if f"<{name}>" in rest:
        return None
    return rest if closed else head + rest


@lru_cache(maxsize=32)
def _tags(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){re.escape(name)}>")
