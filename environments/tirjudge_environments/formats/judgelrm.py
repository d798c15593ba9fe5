"""JudgeLRM's answers: scores in `<answer>` elements behind the thinking (JudgeLRM Fig. 2 and 4)."""

from __future__ import annotations

import re
from itertools import islice

from tirjudge_environments.elements import behind_thinking, elements
from tirjudge_environments.types import Malformed

PREFILL = "<think>"
"""Where both figures leave the judge's turn."""

_NUMBER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)
_TAG = re.compile(r"</?(?:think|answer)>")
_IN_ORDER = ["<think>", "</think>", *2 * ["<answer>", "</answer>"]]


def read_scores(text: str, count: int) -> tuple[float, ...] | Malformed:
    """The scores in the order given: exactly `count` elements behind the thinking, each a number.

    Any number is read, in the range that the prompt asks for or not: two of them tell which is the higher.
    """
    answer = behind_thinking(text)
    if answer is None:
        return Malformed("the thinking was not closed")
    bodies = [element.body for element in elements(answer, "answer")]
    if len(bodies) != count:
        return Malformed(f"{len(bodies)} <answer> elements behind the thinking, not {count}")
    if not all(_NUMBER.fullmatch(body) for body in bodies):
        return Malformed("an <answer> that is no number")
    return tuple(float(body) for body in bodies)


def tags_in_order(text: str) -> bool:
    """One thinking and two answers behind it, with no such tag too many (Eq. 1, first case)."""
    return [tag[0] for tag in islice(_TAG.finditer(text), len(_IN_ORDER) + 1)] == _IN_ORDER


def whole_numbers(text: str, lowest: int, highest: int) -> bool:
    """Whether every answer is written as a whole number of this range (Eq. 1, second case)."""
    bodies = [element.body for element in elements(text, "answer")]
    return all(re.fullmatch("[0-9]{1,2}", body) and lowest <= int(body) <= highest for body in bodies)
