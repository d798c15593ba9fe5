"""A question to another model, its key a function of what is asked; and where its answer stands."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tirjudge_environments.types import Ask, Malformed, Message, Prompt

START, END = "<RESULT_START>", "<RESULT_END>"


def question(kind: str, text: str, read: Callable[[str], object]) -> Ask:
    """`read` makes of an answer what is wanted, or Malformed; such an answer is asked for again."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return Ask(
        key=f"{kind}-{digest}",
        prompt=Prompt(messages=(Message("user", text),)),
        readable=lambda answer: not isinstance(read(answer), Malformed),
    )


def numbered(letter: str, points: Sequence[str]) -> str:
    """`S1: ...`, one line each: a line break inside a point would begin what looks like another one."""
    return "\n".join(f"{letter}{number}: {' '.join(point.split())}" for number, point in enumerate(points, 1))


def result_lines(text: str) -> list[str] | None:
    """The lines between the last `<RESULT_START>` and the `<RESULT_END>` behind it; None without both."""
    start = text.rfind(START)
    end = text.find(END, start)
    if start < 0 or end < 0:
        return None
    return text[start + len(START) : end].splitlines()
