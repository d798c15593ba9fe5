"""Constraints on how many words, sentences, lines, bullets, characters or digits a response has."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from examples.miniature.constraints.base import (
    AT_LEAST,
    AT_MOST,
    EXACTLY,
    NUMBER_SETUP,
    Family,
    Slots,
    Wordings,
)
from examples.miniature.constraints.words import Split, loose_words, salad, sentence

Draw = Callable[[Random, Split], Slots]
Write = Callable[[Random, Split, Slots, bool], str]


def _number(low: int, high: int) -> Draw:
    return lambda rng, split: Slots(number=split.number(rng, low, high))


def _near(rng: Random, number: int) -> int:
    """Return a count within 3 of the threshold and not below 1."""
    return max(1, number + rng.randint(-3, 3))


def _write_words(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    return salad(rng, split, _near(rng, slots.number))


def _write_parts(part: Callable[[Random, Split], str], glue: str) -> Write:
    """Return a writer of responses with about as many parts as the instruction names."""

    def write(rng: Random, split: Split, slots: Slots, good: bool) -> str:
        count = slots.number if good else max(1, slots.number + rng.choice((-2, -1, 1, 2)))
        return glue.join(part(rng, split) for _ in range(count))

    return write


def _short_sentence(rng: Random, split: Split) -> str:
    return sentence(loose_words(rng, split, rng.randint(2, 3)))


def _line(rng: Random, split: Split) -> str:
    return " ".join(loose_words(rng, split, rng.randint(2, 3)))


def _bullet(rng: Random, split: Split) -> str:
    return f"* {_line(rng, split)}"


def _write_characters(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    words = loose_words(rng, split, 1)
    target = slots.number + rng.randint(-12, 12)
    while len(" ".join(words)) + 1 < target:
        words += loose_words(rng, split, 1)
    return sentence(words)


def _write_digits(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    words = loose_words(rng, split, rng.randint(4, 7))
    for _ in range(rng.randint(0, slots.number + 1)):
        words.insert(rng.randint(1, len(words)), str(rng.randint(1, 9)))
    return sentence(words)


COUNTS = (
    Family(
        name="words-at-least",
        wordings=Wordings(
            (
                "use {} words.",
                "please write {} words.",
                "your answer must have {} words.",
                "it needs {} words.",
            ),
            AT_LEAST,
        ),
        slots=_number(5, 11),
        holds=lambda response, slots: len(response.split()) >= slots.number,
        write=_write_words,
        setup=NUMBER_SETUP,
        check="len(r.split()) >= n",
    ),
    Family(
        name="words-at-most",
        wordings=Wordings(
            (
                "use {} words.",
                "please write {} words.",
                "your answer may have {} words.",
                "keep it to {} words.",
            ),
            AT_MOST,
        ),
        slots=_number(5, 11),
        holds=lambda response, slots: len(response.split()) <= slots.number,
        write=_write_words,
        setup=NUMBER_SETUP,
        check="len(r.split()) <= n",
    ),
    Family(
        name="words-exactly",
        wordings=Wordings(
            (
                "use {} words.",
                "please write {} words.",
                "your answer must have {} words.",
                "it needs {} words.",
            ),
            EXACTLY,
        ),
        slots=_number(5, 11),
        holds=lambda response, slots: len(response.split()) == slots.number,
        write=lambda rng, split, slots, good: salad(
            rng, split, slots.number if good else _near(rng, slots.number)
        ),
        setup=NUMBER_SETUP,
        check="len(r.split()) == n",
    ),
    Family(
        name="sentences",
        wordings=Wordings(
            (
                "use {} sentences.",
                "please write {} sentences.",
                "your answer must have {} sentences.",
                "it needs {} sentences.",
            ),
            EXACTLY,
        ),
        slots=_number(2, 5),
        holds=lambda response, slots: len(re.findall(r"[.!?]+(?:\s|\Z)", response)) == slots.number,
        write=_write_parts(_short_sentence, " "),
        setup=NUMBER_SETUP,
        check='r.count(".") == n',
    ),
    Family(
        name="lines",
        wordings=Wordings(
            (
                "use {} lines.",
                "please write {} lines.",
                "your answer must have {} lines.",
                "it needs {} lines.",
            ),
            EXACTLY,
        ),
        slots=_number(2, 5),
        holds=lambda response, slots: len(response.splitlines()) == slots.number,
        write=_write_parts(_line, "\n"),
        setup=NUMBER_SETUP,
        check="len(r.splitlines()) == n",
    ),
    Family(
        name="bullets",
        wordings=Wordings(
            (
                "use {} bullet points.",
                "please write {} bullet points.",
                "your answer must have {} bullet points.",
                "make a list of {} bullet points.",
            ),
            EXACTLY,
        ),
        slots=_number(2, 5),
        holds=lambda response, slots: len(re.findall(r"^\* ", response, re.MULTILINE)) == slots.number,
        write=_write_parts(_bullet, "\n"),
        setup=NUMBER_SETUP,
        check='r.count("* ") == n',
    ),
    Family(
        name="characters-at-most",
        wordings=Wordings(
            (
                "use {} characters.",
                "please write {} characters.",
                "your answer may have {} characters.",
                "keep it to {} characters.",
            ),
            AT_MOST,
        ),
        slots=_number(25, 50),
        holds=lambda response, slots: len(response) <= slots.number,
        write=_write_characters,
        setup=NUMBER_SETUP,
        check="len(r) <= n",
    ),
    Family(
        name="characters-at-least",
        wordings=Wordings(
            (
                "use {} characters.",
                "please write {} characters.",
                "your answer must have {} characters.",
                "it needs {} characters.",
            ),
            AT_LEAST,
        ),
        slots=_number(25, 50),
        holds=lambda response, slots: len(response) >= slots.number,
        write=_write_characters,
        setup=NUMBER_SETUP,
        check="len(r) >= n",
    ),
    Family(
        name="digits",
        wordings=Wordings(
            (
                "use {} digits.",
                "please include {} digits.",
                "your answer must have {} digits.",
                "it needs {} digits.",
            ),
            AT_LEAST,
        ),
        slots=_number(2, 5),
        holds=lambda response, slots: len(re.findall(r"\d", response)) >= slots.number,
        write=_write_digits,
        setup=NUMBER_SETUP,
        check="sum(c.isdigit() for c in r) >= n",
    ),
)
