"""The families about words, letters, language and letter case."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from research.smol.training_rows.families.base import Arguments, CountFamily, Family
from research.smol.training_rows.writing import Pen, insert_sentence, is_prose, language_sentences
from tirjudge_environments.instruction_checks import Verifier, open_verifier

_MENTIONS = (
    "It has something to do with {}.",
    "Think of {} for a moment.",
    "Here the word {} comes to mind.",
    "I would add {} to the list.",
    "Some call it {} and they are right.",
    "That brings us to {} and everything around it.",
    "Do not underestimate {} in this context.",
    "My aunt always talks about {} when the subject comes up.",
    "A bit of {} helps too.",
    "There was {} everywhere.",
    "Without {} it would be boring.",
    "Then came {} and changed the plan.",
)
_STAND_INS = ("it", "this", "that", "something", "them", "one thing")


def mention(text: str, word: str, pen: Pen) -> str:
    """Return the text with one more mention of a word."""
    if pen.chance(0.35):
        lines = text.split("\n")
        places = [number for number, line in enumerate(lines) if is_prose(line)]
        if places:
            number = pen.rng.choice(places)
            parts = lines[number].split(" ")
            parts.insert(pen.rng.randint(1, max(1, len(parts) - 2)), word)
            lines[number] = " ".join(parts)
            return "\n".join(lines)
    return insert_sentence(text, pen.rng.choice(_MENTIONS).format(word), pen.rng)


def unmention(text: str, word: str, pen: Pen, count: int = 0) -> str:
    """Return the text with other words in the place of a word, everywhere or `count` times."""
    stand_in = pen.rng.choice(_STAND_INS)
    return re.sub(re.escape(word), stand_in, text, count=count, flags=re.IGNORECASE)


def draw_word(text: str, pen: Pen, from_text: float) -> str:
    """Draw a word for a prompt: from the answer with this probability, otherwise from the vocabulary."""
    own = [word for word in re.findall(r"\b[a-z]{4,11}\b", text) if word not in _STAND_INS]
    if own and pen.chance(from_text):
        return pen.rng.choice(own)
    word = pen.rng.choice(pen.vocabulary)
    how = pen.rng.random()
    if how < 0.05:
        return f"{word} {pen.rng.choice(pen.vocabulary)}"
    if how < 0.14:
        return word.capitalize()
    if how < 0.24:
        return _foreign_word(pen)
    if how < 0.36:
        return _invented_name(pen)
    return word


def _foreign_word(pen: Pen) -> str:
    text = " ".join(
        language_sentences()[pen.rng.choice(["German", "French", "Spanish", "Italian", "Finnish"])]
    )
    return pen.rng.choice(re.findall(r"\b[a-zäöüéèàñ]{2,10}\b", text))


def _invented_name(pen: Pen) -> str:
    """Return a name that no one has seen, so that a judge must copy it from the prompt letter by letter."""
    parts = [
        f"{pen.rng.choice('bcdfghklmnprstvw')}{pen.rng.choice('aeiou')}" for _ in range(pen.rng.randint(2, 3))
    ]
    name = "".join(parts) + pen.rng.choice(["", "n", "r", "s", "ll", "x"])
    return name.capitalize() if pen.chance(0.5) else name


def quoted(words: Sequence[str], last: str, rng: random.Random) -> str:
    """Write the words of a prompt in one of several styles."""
    style = rng.choice(["{}", "{}", '"{}"', '"{}"', "'{}'", "'{}'", "*{}*", "`{}`", "{{{}}}"])
    if style == "*{}*" and rng.random() < 0.5:
        style = "**{}**"
    if style == "{}" and any(" " in word for word in words):
        style = '"{}"'
    written = [style.format(word) for word in words]
    if len(written) == 1:
        return written[0]
    if rng.random() < 0.25:
        return ", ".join(written)
    return f"{', '.join(written[:-1])} {last} {written[-1]}"


class Words(Family):
    """The families with a list of words."""

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        words = given["words"]
        many = "s" if len(words) > 1 else ""
        the = f"the word{many}"
        return {
            "words": quoted(words, "and", rng),
            "words_or": quoted(words, "or", rng),
            "keyword_s": f"keyword{many}",
            "the_keyword_s": f"the keyword{many}",
            "the_word_s": the,
            "The_word_s": the.capitalize(),
            "the_word_s_or": the,
            "The_word_s_or": the.capitalize(),
            "appear_s": "appear" if many else "appears",
            "is_are": "are" if many else "is",
            "is_or": "are" if many else "is",
        }

    def _draw_words(self, text: str, pen: Pen, from_text: float) -> list[str]:
        count = pen.rng.choice([1, 1, 2, 2, 2, 3, 3, 4])
        found = dict.fromkeys(draw_word(text, pen, from_text) for _ in range(count))
        # A word inside another one would be kept by its neighbour. "Time" and "time" are inside each other.
        alone = [
            one for one in found if not any(one != other and one.lower() in other.lower() for other in found)
        ]
        return alone or list(found)[:1]


class Existence(Words):
    id: str = "keywords:existence"
    order: int = 40

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {"words": self._draw_words(text, pen, 0.2)}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id, keywords=given["words"]),)

    def expression(self, given: Arguments) -> str:
        return f"all(w.lower() in r.lower() for w in {literal(given['words'])})"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        for word in given["words"]:
            if word.lower() not in text.lower():
                text = mention(text, word, pen)
        return text

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        words = given["words"]
        # Missing one word of several is the harder case, so it is the common one.
        missing = pen.rng.sample(words, 1 if pen.chance(0.75) else len(words))
        for word in words:
            if word in missing:
                text = unmention(text, word, pen)
            elif word.lower() not in text.lower() and pen.chance(0.8):
                text = mention(text, word, pen)
        return text


class ForbiddenWords(Words):
    id: str = "keywords:forbidden_words"
    order: int = 45

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {"words": self._draw_words(text, pen, 0.5)}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id, forbidden_words=given["words"]),)

    def expression(self, given: Arguments) -> str:
        words = literal(given["words"])
        return rf'not any(re.search(r"\b" + w + r"\b", r, re.I) for w in {words})'

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        for word in given["words"]:
            text = unmention(text, word, pen)
        return text

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        used = pen.rng.sample(given["words"], 1 if pen.chance(0.75) else len(given["words"]))
        for word in used:
            text = mention(text, word, pen)
        return text


class KeywordFrequency(CountFamily):
    id: str = "keywords:frequency"
    order: int = 42
    argument: ClassVar[str] = "frequency"

    def others(self, text: str, pen: Pen) -> Arguments:
        return {"word": draw_word(text, pen, 0.3)}

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice(
            [1, 2, 2, 3, 3, 4, 5, 6, 8] if relation in (">=", ">") else [2, 2, 3, 3, 4, 5, 6]
        )

    def verifier_arguments(self, given: Arguments) -> Arguments:
        return {"keyword": given["word"]}

    def counted_in(self, given: Arguments) -> str:
        return f"r.lower().count({lowered(given['word'])})"

    def count(self, text: str, given: Arguments) -> int:
        return text.lower().count(given["word"].lower())

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        return mention(text, given["word"], pen)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return unmention(text, given["word"], pen, count=1)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {**super().fields(given, rng), "word": quoted([given["word"]], "", rng)}


class LetterFrequency(CountFamily):
    id: str = "keywords:letter_frequency"
    order: int = 44
    argument: ClassVar[str] = "let_frequency"
    relation_argument: ClassVar[str] = "let_relation"

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        lower = text.lower()
        if relation == "=0":
            letters: Sequence[str] = [one for one in "bcfgjkmpqvwxyz" if lower.count(one) <= 8] or ["q"]
        else:
            letters = "abcdefghijklmnopqrstuvwxyz" if pen.chance(0.5) else "bcfgjkpqvwxyz!?#"
        given = {"letter": pen.rng.choice(letters), "relation": relation}
        return given | {"n": self.number(relation, text, given, pen)}

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        if relation == "=0":
            return 0
        return max(2, min(90, self.count(text, given) + pen.rng.randint(-4, 6)))

    def verifier_arguments(self, given: Arguments) -> Arguments:
        return {"letter": given["letter"]}

    def counted_in(self, given: Arguments) -> str:
        return f"r.lower().count({lowered(given['letter'])})"

    def count(self, text: str, given: Arguments) -> int:
        return text.lower().count(given["letter"])

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        letter = given["letter"]
        if not letter.isalpha():
            return insert_sentence(text, f"{pen.sentence().rstrip('.!?')}{letter}", pen.rng)
        words = [word for word in pen.vocabulary if letter in word]
        return mention(text, pen.rng.choice(words), pen)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        letter = given["letter"]
        found = re.findall(rf"\S*{re.escape(letter)}\S*", text, re.IGNORECASE)
        if not found:
            return text
        word = pen.rng.choice(found)
        kept = "." if letter != "." and word.endswith(".") else ""
        return text.replace(word, kept or pen.rng.choice(["so", "too", "it"]), 1)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        letter = given["letter"]
        if letter.isalpha() and rng.random() < 0.25:
            letter = letter.upper()
        written = rng.choice([letter, f'"{letter}"', f"'{letter}'"]) if letter.isalpha() else f'"{letter}"'
        return {**super().fields(given, rng), "letter": written}


class CapitalWords(CountFamily):
    id: str = "change_case:capital_word_frequency"
    order: int = 50
    argument: ClassVar[str] = "capital_frequency"
    relation_argument: ClassVar[str] = "capital_relation"
    counted: ClassVar[str] = r'sum(w.isupper() for w in re.findall(r"[\w-]+", r))'

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice(
            [2, 3, 3, 4, 5, 6, 8, 10, 12, 15] if ">" in relation else [2, 3, 4, 5, 6, 8, 10]
        )

    def count(self, text: str, given: Arguments) -> int:
        # The verifier's tokenizer is slow; the two rarely differ, and the verifier has the last word.
        return sum(word.isupper() for word in re.findall(r"[\w-]+", text))

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        found = re.findall(r"\b[a-z]{3,}\b", text)
        if not found:
            return insert_sentence(text, pen.sentence(), pen.rng)
        return re.sub(rf"\b{pen.rng.choice(found)}\b", lambda match: match[0].upper(), text, count=1)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        found = re.findall(r"\b[A-Z]+\b", text)
        if not found:
            return text
        word = pen.rng.choice(found)
        instead = {"I": "we", "A": "the"}.get(word, word.lower())
        return re.sub(rf"\b{word}\b", instead, text, count=1)


def lowered(value: str) -> str:
    """Write a string as Python source that is compared without case.

    A small model copies a literal more reliably than it lowers it, so the program does that. It always does,
    since a model that saw it only at literals with capitals often left it out.
    """
    return f"{literal(value)}.lower()"


def literal(value: str | Sequence[str]) -> str:
    """Write a string or a list of strings as Python source with double quotation marks."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return f"[{', '.join(map(literal, value))}]"
