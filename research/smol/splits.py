"""The splits that were fixed before training: development and test halves, and groups of families.

    python -m research.smol.splits

Prints the groups of families and the size of each half. Choices are made on the development half only; the
test half is scored once per released adapter. A prompt's half depends on its text alone, so that sets made
from the same prompt never straddle the halves.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from tirjudge_environments.instruction_checks import IFEVAL

Split = Literal["development", "test"]
SPLITS: tuple[Split, ...] = ("development", "test")

SEED = 17
"""Seed of the held-out families and of every other draw in these scripts except `draw_trained`
and `draw_form`."""
_SALT = "tirjudge smol: development or test?"


def split_of(prompt: str) -> Split:
    """Return the half of a prompt: that of the first bit of the SHA-256 of a salt, a newline and the prompt.

    White space is collapsed first, so that a copy with other line ends falls into the same half.
    """
    text = f"{_SALT}\n{' '.join(prompt.split())}"
    return SPLITS[hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0] >> 7]


def rank(*parts: object) -> int:
    """Return a number that depends on the seed and the parts alone: the order of a seeded sample."""
    text = "\x1f".join(map(str, (SEED, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def draw_held_out(count: int = 5) -> tuple[str, ...]:
    """Return the IFEval families with the lowest rank: a seeded draw without replacement, sorted by name."""
    return tuple(sorted(sorted(IFEVAL, key=lambda family: rank("held-out family", family))[:count]))


HELD_OUT_FAMILIES = (
    "change_case:english_capital",
    "combination:two_responses",
    "detectable_format:title",
    "length_constraints:number_words",
    "startend:end_checker",
)
"""The result of `draw_held_out()`: families in no training stage of the arms that are compared."""


def draw_trained(count: int = 10) -> tuple[str, ...]:
    """Return IFEval families for arms that train on few, drawn without those held out, sorted by name.

    The arms were trained with this draw, so it stays: with the seed 0 of `random` and not by `rank`.
    """
    return tuple(sorted(random.Random(0).sample(sorted(set(IFEVAL) - set(HELD_OUT_FAMILIES)), count)))


def draw_further(count: int = 8) -> tuple[str, ...]:
    """Return IFEval families that are neither held out nor among the ten, those of lowest rank, by name."""
    left = sorted(set(IFEVAL) - set(HELD_OUT_FAMILIES) - set(draw_trained()))
    return tuple(sorted(sorted(left, key=lambda family: rank("further family", family))[:count]))


def draw_form(count: int = 2) -> tuple[str, ...]:
    """Return the families of the dialogues that teach the form alone, drawn from the ten, sorted by name."""
    return tuple(sorted(random.Random(0).sample(draw_trained(), count)))


FAMILIES: Mapping[str, tuple[str, ...]] = {
    "held-out": HELD_OUT_FAMILIES,
    "ten": (
        "change_case:english_lowercase",
        "detectable_content:postscript",
        "detectable_format:constrained_response",
        "detectable_format:json_format",
        "detectable_format:multiple_sections",
        "detectable_format:number_bullet_lists",
        "keywords:frequency",
        "keywords:letter_frequency",
        "length_constraints:nth_paragraph_first_word",
        "startend:quotation",
    ),
    "eight": (
        "change_case:capital_word_frequency",
        "combination:repeat_prompt",
        "detectable_content:number_placeholders",
        "detectable_format:number_highlighted_sections",
        "keywords:existence",
        "keywords:forbidden_words",
        "length_constraints:number_sentences",
        "punctuation:no_comma",
    ),
}
"""Groups of families by name: those held out, and the results of `draw_trained()` and `draw_further()`."""


def main() -> None:
    """Print the groups of families and the sizes of the halves."""
    from research.smol.sources import ifbench_rows, ifeval_rows, mbpp_problems

    for group, families in FAMILIES.items():
        print(f"families of the group {group}:")
        print("".join(f"  {family}\n" for family in families), end="")
    for name, prompts in (
        ("IFEval", [row["prompt"] for row in ifeval_rows()]),
        ("IFBench-agentrm", [row["prompt"] for row in ifbench_rows()]),
        ("MBPP 11-510", [row["text"] for row in mbpp_problems()]),
    ):
        counts = Counter(map(split_of, prompts))
        print(f"{name}: " + ", ".join(f"{counts[split]} {split}" for split in SPLITS))


if __name__ == "__main__":
    main()
