"""Constraints on the form of a response: case, punctuation, quoting, repetition."""

from __future__ import annotations

import re
from random import Random

from examples.miniature.constraints.base import Family, Slots, Wordings, no_slots
from examples.miniature.constraints.words import Split, loose_words, salad, sentence


def _one_word_changed(rng: Random, text: str, *, upper: bool) -> str:
    words = text.split()
    position = rng.randrange(len(words))
    words[position] = words[position].upper() if upper else words[position].lower()
    return " ".join(words)


def _write_upper(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    text = salad(rng, split)
    if good:
        return text.upper()
    return _one_word_changed(rng, text.upper(), upper=False) if rng.random() < 0.5 else text


def _write_lower(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    text = salad(rng, split)
    if good:
        return text.lower()
    return _one_word_changed(rng, text.lower(), upper=True) if rng.random() < 0.5 else text


def _write_commas(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    words = loose_words(rng, split, rng.randint(5, 9))
    for _ in range(0 if good else rng.randint(1, 2)):
        words[rng.randrange(len(words) - 1)] += ","
    return sentence(words)


def _write_quoted(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    text = salad(rng, split)
    return f'"{text}"' if good else rng.choice((text, f'"{text}', f'{text}"'))


def _write_title(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    title, text = split.word(rng), salad(rng, split)
    return f"<<{title}>> {text}" if good else rng.choice((text, f"{title}: {text}", f"<{title}> {text}"))


def _write_question(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    words = loose_words(rng, split, rng.randint(5, 9))
    if good:
        return sentence(words, "?")
    return sentence(words) if rng.random() < 0.5 else f"{sentence(words[:3], '?')} {sentence(words[3:])}"


def _write_distinct(rng: Random, split: Split, slots: Slots, good: bool) -> str:
    words = [split.word(rng) for _ in range(rng.randint(5, 9))]
    if not good:
        words.insert(rng.randint(0, len(words)), rng.choice(words))
    return " ".join(words)


SHAPE = (
    Family(
        name="upper",
        wordings=Wordings(
            (
                "write in {} letters.",
                "use {} letters only.",
                "your answer must be in {} letters.",
                "all in {}.",
            ),
            ("capital", "upper case", "big", "full capital"),
        ),
        slots=no_slots,
        holds=lambda response, slots: response == response.upper() != response.lower(),
        write=_write_upper,
        check="r.isupper()",
    ),
    Family(
        name="lower",
        wordings=Wordings(
            (
                "write in {} letters.",
                "use {} letters only.",
                "your answer must be in {} letters.",
                "all in {}.",
            ),
            ("small", "lower case", "little", "uncapitalized"),
        ),
        slots=no_slots,
        holds=lambda response, slots: response == response.lower() != response.upper(),
        write=_write_lower,
        check="r.islower()",
    ),
    Family(
        name="no-commas",
        wordings=Wordings(
            (
                "{} commas.",
                "please {} any commas.",
                "take care: {} commas at all.",
                "{} commas in your answer.",
            ),
            ("do not use", "never use", "avoid", "leave out"),
        ),
        slots=no_slots,
        holds=lambda response, slots: response.count(",") == 0,
        write=_write_commas,
        check='"," not in r',
    ),
    Family(
        name="quoted",
        wordings=Wordings(
            (
                "{} your answer in double quotes.",
                "please {} the whole answer in quotes.",
                "be sure to {} it in double quotes.",
                "{} all of it in quotation marks.",
            ),
            ("wrap", "put", "enclose", "set"),
        ),
        slots=no_slots,
        holds=lambda response, slots: re.fullmatch(r'".*"', response, re.DOTALL) is not None,
        write=_write_quoted,
        check="r[0] == r[-1] == '\"'",
    ),
    Family(
        name="title",
        wordings=Wordings(
            (
                "{} a title in double angle brackets.",
                "please {} a title in << and >>.",
                "your answer must {} a title in angle brackets.",
                "be sure to {} a title in << >>.",
            ),
            ("have", "include", "give", "add"),
        ),
        slots=no_slots,
        holds=lambda response, slots: re.search(r"<<.+>>", response) is not None,
        write=_write_title,
        check='"<<" in r and ">>" in r',
    ),
    Family(
        name="question",
        wordings=Wordings(
            (
                "{} with a question mark.",
                "please {} your answer with a question.",
                "your answer must {} with one question mark.",
                "as the last sign, {} with some question mark.",
            ),
            ("end", "finish", "close", "stop"),
        ),
        slots=no_slots,
        holds=lambda response, slots: re.search(r"\?\Z", response) is not None,
        write=_write_question,
        check='r.endswith("?")',
    ),
    Family(
        name="distinct",
        wordings=Wordings(
            (
                "{} the same word twice.",
                "please {} any word twice.",
                "take care: {} a word twice.",
                "{} one word twice in your answer.",
            ),
            ("do not use", "never use", "avoid using", "do not repeat"),
        ),
        slots=no_slots,
        holds=lambda response, slots: (
            not re.search(r"(?<!\S)(\S+)(?!\S)(?:.*\s)\1(?!\S)", response, re.DOTALL)
        ),
        write=_write_distinct,
        check="len(set(r.split())) == len(r.split())",
    ),
)
