"""The answer of a rationale judge: reasons, the most important first, and one of five verdicts (Fig. 13)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tirjudge_environments.rationales.base import result_lines
from tirjudge_environments.types import Malformed

_BOXED = re.compile(r"\\boxed\{\s*([AB])\s*(>>?|<<?|=)\s*([AB])\s*\}")
_ITEM = re.compile(r"([ \t]*)(?:[-*•]|[0-9]{1,3}[.)])((?:[ \t].*)?)")
_HEADING = re.compile(r"\W*final assessment result\b", re.IGNORECASE)
_BOX = "\\boxed{"
_LONGEST_BOX = 40


@dataclass(frozen=True, slots=True)
class Assessment:
    """A parsed answer, before letters are converted to candidates."""

    reasons: tuple[str, ...]
    """The reasons in order, each in one line."""
    preferred: str
    """`A` or `B`; empty for a tie."""
    strength: int
    """2 for significantly, 1 for slightly, 0 for a tie."""


def read_assessment(text: str) -> Assessment | Malformed:
    r"""Parse the last `<RESULT_START>` ... `<RESULT_END>` of a text: its list and its last `\boxed{}`.

    `A<B` and `A<<B`, as the paper's own tables write it, are read as `B>A` and `B>>A`.
    """
    lines = result_lines(text)
    if lines is None:
        return Malformed("no <RESULT_START> with a <RESULT_END> behind it")
    boxes = [number for number, line in enumerate(lines) if _BOX in line]
    if not boxes:
        return Malformed("no \\boxed{} in the result")
    verdict = _verdict(lines[boxes[-1]])
    if verdict is None:
        return Malformed("the last \\boxed{} is none of the five results")
    headings = [number for number, line in enumerate(lines[: boxes[-1] + 1]) if _HEADING.match(line)]
    end = headings[-1] if headings else boxes[-1]
    return Assessment(tuple(_items(lines[:end])), *verdict)


def _verdict(line: str) -> tuple[str, int] | None:
    box = line[line.rindex(_BOX) :][:_LONGEST_BOX]
    found = _BOXED.match(box)
    if found is None or found[1] == found[3]:
        return None
    left, sign, right = found.groups()
    if sign == "=":
        return "", 0
    return (left if sign[0] == ">" else right), len(sign)


def _items(lines: Iterable[str]) -> list[str]:
    """Return the list items; continuation lines and deeper items are joined to the item above."""
    items: list[list[str]] = []
    indent: int | None = None
    for line in lines:
        found = _ITEM.fullmatch(line)
        if found is not None and (indent is None or len(found[1]) <= indent):
            indent = len(found[1]) if indent is None else indent
            items.append([found[2]])
        elif items:
            items[-1].append(line)
    joined = (" ".join(" ".join(parts).split()) for parts in items)
    return [item for item in joined if item]
