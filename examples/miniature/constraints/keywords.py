"""Constraints on words and letters that the instruction puts in double quotes."""

from __future__ import annotations

import re
from random import Random

from examples.miniature.constraints.base import (
    AT_LEAST,
    AT_MOST,
    NUMBER_SETUP,
    WORD_SETUP,
    Family,
    Slots,
    Wordings,
)
from examples.miniature.constraints.words import Split, loose_words, salad, sentence


def _word(rng: Random, split: Split) -> Slots:
    return Slots(word=split.word(rng))


def _word_and_number(rng: Random, split: Split) -> Slots:
    return Slots(split.word(rng), split.number(rng, 2, 5))


def _letter_and_number(rng: Random, split: Split) -> Slots:
    return Slots(rng.choice(split.letters), split.number(rng, 2, 6))


def _occurrences(response: str, slots: Slots) -> int:
    return len(re.findall(re.escape(slots.word), response, re.IGNORECASE))


def _with_word(rng: Random, split: Split, slots: Slots, count: int = 1) -> list[str]:
    words = loose_words(rng, split, rng.randint(5, 8))
    for _ in range(count):
        words.insert(rng.randint(0, len(words)), slots.word)
    return words


def _write_contains(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    return sentence(_with_word(rng, split, slots)) if good else salad(rng, split)


def _write_lacks(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    return _write_contains(rng, split, slots, not good)


def _write_starts(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    words = loose_words(rng, split, rng.randint(5, 8))
    return sentence([slots.word, *words] if good else _with_word(rng, split, slots, rng.randint(0, 1)))


def _write_ends(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    words = loose_words(rng, split, rng.randint(5, 8))
    return sentence([*words, slots.word] if good else _with_word(rng, split, slots, rng.randint(0, 1)))


def _write_times(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    count = slots.number + rng.randint(0, 1) if good else rng.randint(0, slots.number - 1)
    return sentence(_with_word(rng, split, slots, count))


def _write_letters(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    """Write six to ten words, of which a random share contains the letter."""
    having = [word for word in split.words if slots.word in word]
    lacking = [word for word in split.words if slots.word not in word]
    share = rng.random()
    return sentence(
        [rng.choice(having if rng.random() < share else lacking) for _ in range(rng.randint(6, 10))]
    )


KEYWORDS = (
    Family(
        name="contains",
        wordings=Wordings(
            (
                '{} the word "{word}".',
                'please {} the word "{word}" somewhere.',
                'your answer must {} the given word "{word}".',
                'be sure to {} "{word}" as a word.',
            ),
            ("use", "include", "mention", "contain"),
        ),
        slots=_word,
        holds=lambda response, slots: _occurrences(response, slots) > 0,
        write=_write_contains,
        setup=WORD_SETUP,
        check="w in r.lower()",
    ),
    Family(
        name="lacks",
        wordings=Wordings(
            (
                '{} the word "{word}".',
                'please {} the word "{word}" anywhere.',
                'take care: {} the word "{word}" at all.',
                '{} the word "{word}" in your answer.',
            ),
            ("do not use", "never use", "avoid", "leave out"),
        ),
        slots=_word,
        holds=lambda response, slots: _occurrences(response, slots) == 0,
        write=_write_lacks,
        setup=WORD_SETUP,
        check="w not in r.lower()",
    ),
    Family(
        name="starts",
        wordings=Wordings(
            (
                '{} with the word "{word}".',
                'please {} your answer with "{word}".',
                'your answer must {} with the given word "{word}".',
                'the first word: {} with "{word}".',
            ),
            ("start", "begin", "open", "lead"),
        ),
        slots=_word,
        holds=lambda response, slots: re.match(re.escape(slots.word), response, re.IGNORECASE) is not None,
        write=_write_starts,
        setup=WORD_SETUP,
        check="r.lower().startswith(w)",
    ),
    Family(
        name="ends",
        wordings=Wordings(
            (
                '{} with the word "{word}".',
                'please {} your answer with "{word}".',
                'your answer must {} with the given word "{word}".',
                'the last word: {} with "{word}".',
            ),
            ("end", "finish", "close", "stop"),
        ),
        slots=_word,
        holds=lambda response, slots: (
            re.search(re.escape(slots.word) + r"\.*\Z", response, re.IGNORECASE) is not None
        ),
        write=_write_ends,
        setup=WORD_SETUP,
        check='r.lower().rstrip(".").endswith(w)',
    ),
    Family(
        name="word-times",
        wordings=Wordings(
            (
                'use the word "{word}" {} times.',
                'the word "{word}" must appear {} times.',
                'repeat the word "{word}" {} times.',
                'please say the word "{word}" {} times.',
            ),
            AT_LEAST,
        ),
        slots=_word_and_number,
        holds=lambda response, slots: _occurrences(response, slots) >= slots.number,
        write=_write_times,
        setup=NUMBER_SETUP + WORD_SETUP,
        check="r.lower().count(w) >= n",
    ),
    Family(
        name="letter-at-least",
        wordings=Wordings(
            (
                'use the letter "{word}" {} times.',
                'the letter "{word}" must appear {} times.',
                'repeat the letter "{word}" {} times.',
                'please write the letter "{word}" {} times.',
            ),
            AT_LEAST,
        ),
        slots=_letter_and_number,
        holds=lambda response, slots: _occurrences(response, slots) >= slots.number,
        write=_write_letters,
        setup=NUMBER_SETUP + WORD_SETUP,
        check="r.lower().count(w) >= n",
    ),
    Family(
        name="letter-at-most",
        wordings=Wordings(
            (
                'use the letter "{word}" {} times.',
                'the letter "{word}" may appear {} times.',
                'keep the letter "{word}" to {} times.',
                'please write the letter "{word}" {} times.',
            ),
            AT_MOST,
        ),
        slots=_letter_and_number,
        holds=lambda response, slots: _occurrences(response, slots) <= slots.number,
        write=_write_letters,
        setup=NUMBER_SETUP + WORD_SETUP,
        check="r.lower().count(w) <= n",
    ),
)
