"""Functions of the benchmark's modules: what they shall do, right versions, and versions with a fault."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MIDDLE = """def middle(numbers):
    ordered = sorted(numbers)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2
"""
MIDDLE_AGAIN = """from statistics import median


def middle(numbers):
    return median(numbers)
"""
SLUG = """import re


def slug(text):
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
"""
SLUG_AGAIN = """def slug(text):
    words = [[]]
    for mark in text.lower():
        if mark.isascii() and mark.isalnum():
            words[-1].append(mark)
        else:
            words.append([])
    return "-".join("".join(word) for word in words if word)
"""
MERGE = """def merge(spans):
    made = []
    for low, high in sorted(spans):
        if made and low <= made[-1][1]:
            made[-1][1] = max(made[-1][1], high)
        else:
            made.append([low, high])
    return made
"""
ROMAN = """VALUES = [
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
    (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
]


def roman(number):
    made = ""
    for value, text in VALUES:
        made += number // value * text
        number %= value
    return made
"""


@dataclass(frozen=True)
class Module:
    """A function that an agent was asked for."""

    signature: str
    about: str
    truth: Callable[..., Any]
    """The results of the cases, written apart from the modules."""
    right: Sequence[str]
    faults: Mapping[str, tuple[str, str]]
    """By what is wrong: the part of the first right version that another one replaces."""
    cases: Sequence[list[Any]]
    """Arguments of calls: every fault shows in at least one of them."""

    def wrong(self, fault: str) -> str:
        """Return the version with a fault."""
        old, new = self.faults[fault]
        assert old in self.right[0]
        return self.right[0].replace(old, new)


def _union(spans: list[list[int]]) -> list[list[int]]:
    covered = {point / 2 for low, high in spans for point in range(2 * low, 2 * high + 1)}
    starts = sorted(one for one in covered if one - 0.5 not in covered)
    ends = sorted(one for one in covered if one + 0.5 not in covered)
    return [[int(low), int(high)] for low, high in zip(starts, ends, strict=True)]


_DIGITS = (
    ("", "M", "MM", "MMM"),
    ("", "C", "CC", "CCC", "CD", "D", "DC", "DCC", "DCCC", "CM"),
    ("", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX", "XC"),
    ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"),
)

MODULES: Mapping[str, Module] = {
    "middle": Module(
        "(numbers)",
        "return the median of a list of numbers, the mean of the two middle ones for an even count.",
        statistics.median,
        (MIDDLE, MIDDLE_AGAIN),
        {
            "unsorted": ("sorted(numbers)", "numbers"),
            "upper of two": ("(ordered[half - 1] + ordered[half]) / 2", "ordered[half]"),
            "whole division": ("ordered[half]) / 2", "ordered[half]) // 2"),
        },
        [[[3, 1, 2]], [[4, 1]], [[5]], [[7, 7, 1, 2]], [[10, 2, 8, 4, 6]], [[-1, -2, -4, 0]]],
    ),
    "slug": Module(
        "(text)",
        "return the text in lower case, with every run of characters other than a-z and 0-9 as one hyphen, "
        "and none at its ends.",
        lambda text: "-".join(re.findall("[a-z0-9]+", text.lower())),
        (SLUG, SLUG_AGAIN),
        {
            "hyphens at the ends": ('.strip("-")', ""),
            "runs kept": ("0-9]+", "0-9]"),
            "upper case lost": ("text.lower()", "text"),
        },
        [["Hello, World"], ["a--b"], [" Title "], ["C++ and C#"], ["2 + 2 = 4!"], ["x"], ["Über uns"]],
    ),
    "merge": Module(
        "(spans)",
        "return the union of closed spans [low, high] of whole numbers as sorted spans; spans that share a "
        "number are one.",
        _union,
        (MERGE,),
        {
            "contained span": ("max(made[-1][1], high)", "high"),
            "touching spans": ("low <= made", "low < made"),
            "unsorted": ("sorted(spans)", "spans"),
        },
        [
            *([[[1, 3], [2, 5]]], [[[1, 9], [2, 3]]], [[[1, 2], [2, 4]]]),
            *([[[5, 6], [1, 2]]], [[]], [[[1, 1], [3, 4]]]),
        ],
    ),
    "roman": Module(
        "(number)",
        "return a number from 1 to 3999 in Roman numerals.",
        lambda number: "".join(_DIGITS[place][int(digit)] for place, digit in enumerate(f"{number:04}")),
        (ROMAN,),
        {
            "nine forgotten": ('(9, "IX"), ', ""),
            "forty forgotten": ('(40, "XL"), ', ""),
            "remainder kept": ("number %= value", "number -= value"),
        },
        [[4], [9], [40], [44], [90], [400], [1994], [2026], [3999], [1], [888]],
    ),
}
