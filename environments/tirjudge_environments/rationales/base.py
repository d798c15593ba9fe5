"""Questions to another model, and the part of its answer that is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tirjudge_environments.types import Malformed, Message, Prompt, Question

START, END = "<RESULT_START>", "<RESULT_END>"


def question(kind: str, text: str, read: Callable[[str], object]) -> Question:
    """Build a question whose key is a hash of its text.

    `read` parses an answer and returns Malformed if it cannot; then the question is asked again.
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Question(
        key=f"{kind}-{digest}",
        prompt=Prompt(messages=(Message("user", text),)),
        readable=lambda answer: not isinstance(read(answer), Malformed),
    )


def numbered(letter: str, points: Sequence[str]) -> str:
    """Return the points as lines `S1: ...`; line breaks inside a point become spaces."""
    return "\n".join(f"{letter}{number}: {' '.join(point.split())}" for number, point in enumerate(points, 1))


def result_lines(text: str) -> list[str] | None:
    """Return the lines between the last `<RESULT_START>` and the next `<RESULT_END>`; None without both."""
    start = text.rfind(START)
    end = text.find(END, start)
    if start < 0 or end < 0:
        return None
    return text[start + len(START) : end].splitlines()
