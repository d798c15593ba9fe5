"""The families about lengths, paragraphs, lists, sections and marks."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from research.smol.training_rows.families.base import INFINITE, NUMBERS, Arguments, CountFamily, Family, Holds
from research.smol.training_rows.families.keywords import draw_word, lowered, quoted
from research.smol.training_rows.writing import (
    Pen,
    insert_sentence,
    is_prose,
    regroup,
    remove_sentence,
    sentences,
)
from tirjudge_environments.instruction_checks import Verifier, count_sentences, count_words, open_verifier

_ORDINALS = ("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh")
_SHORT_ORDINALS = ("0th", "1st", "2nd", "3rd", "4th", "5th", "6th", "7th")


class Length(CountFamily):
    """A family that counts words or sentences, and whose edits add and remove sentences."""

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        return insert_sentence(text, pen.sentence(), pen.rng)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return _shorter(text, pen)


class NumberWords(Length):
    id: str = "length_constraints:number_words"
    order: int = 20
    argument: ClassVar[str] = "num_words"
    counted: ClassVar[str] = r'len(re.findall(r"\w+", r))'

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        near = count_words(text) * pen.rng.uniform(0.6, 1.5)
        number = (
            pen.rng.choice([30, 40, 50, 60, 75, 80, 100, 120, 150, 200, 250, 300, 350])
            if pen.chance(0.4)
            else near
        )
        step = pen.rng.choice([1, 5, 10, 10, 25, 50])
        return int(max(15, min(400, round(number / step) * step)))

    def count(self, text: str, given: Arguments) -> int:
        return count_words(text)


class NumberSentences(Length):
    id: str = "length_constraints:number_sentences"
    order: int = 21
    argument: ClassVar[str] = "num_sentences"
    counted: ClassVar[str] = r'len(re.split(r"(?<=[.!?])\s+", r.strip()))'

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        near = count_sentences(text) + pen.rng.randint(-3, 4)
        return max(2, min(40, near if pen.chance(0.6) else pen.rng.randint(2, 20)))

    def count(self, text: str, given: Arguments) -> int:
        return count_sentences(text)


class NumberBullets(CountFamily):
    id: str = "detectable_format:number_bullet_lists"
    order: int = 25
    argument: ClassVar[str] = "num_bullets"
    relation_argument: ClassVar[str] = ""
    counted: ClassVar[str] = r'len(re.findall(r"^\s*(?:-|\*[^*])", r, re.M))'
    bullet: ClassVar[re.Pattern[str]] = re.compile(r"^[^\S\n]*(?:-|\*[^*]).*$", re.MULTILINE)

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10])

    def count(self, text: str, given: Arguments) -> int:
        return len(self.bullet.findall(text))

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        found = list(self.bullet.finditer(text))
        if found:
            mark = "*" if found[-1][0].lstrip().startswith("*") else "-"
            end = found[-1].end()
            return f"{text[:end]}\n{mark} {pen.sentence()}{text[end:]}"
        numbered = re.compile(r"^\d+\. ", re.MULTILINE)
        if numbered.search(text):
            return numbered.sub(pen.rng.choice(["- ", "* "]), text)
        item = f"{pen.rng.choice('*-')} {pen.sentence()}"
        before, gap, after = text.rpartition("\n\n")
        return f"{before}{gap}{item}\n\n{after}" if gap and pen.chance(0.5) else f"{text}\n\n{item}"

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        found = list(self.bullet.finditer(text))
        if len(found) > 2 and pen.chance(0.1):
            return self.bullet.sub(lambda match: match[0].lstrip(" *-"), text)
        one = pen.rng.choice(found)
        return f"{text[: one.start()].rstrip(' ')}{text[one.end() :].removeprefix(chr(10))}"


class Highlights(CountFamily):
    id: str = "detectable_format:number_highlighted_sections"
    order: int = 60
    argument: ClassVar[str] = "num_highlights"
    relation_argument: ClassVar[str] = ""
    counted: ClassVar[str] = r'len(re.findall(r"\*+[^\n*]+\*+", r))'
    marked: ClassVar[re.Pattern[str]] = re.compile(r"\*+([^\n*]+)\*+")

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([2, 2, 3, 3, 4, 5, 6])

    def count(self, text: str, given: Arguments) -> int:
        return len(self.marked.findall(text))

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        stars = "*" if pen.chance(0.6) else "**"
        lines = text.split("\n")
        places = [
            at for at, line in enumerate(lines) if is_prose(line) and len(re.findall(r"\b\w", line)) > 5
        ]
        if not places:
            return insert_sentence(text, f"This is {stars}important{stars} too.", pen.rng)
        at = pen.rng.choice(places)
        words = lines[at].split(" ")
        size = pen.rng.choice([1, 1, 2, 3])
        free = [
            start
            for start in range(len(words) - size)
            if all(re.fullmatch(r"[\w']+", word) for word in words[start : start + size])
        ]
        if not free:
            return insert_sentence(text, f"This is {stars}important{stars} too.", pen.rng)
        start = pen.rng.choice(free)
        words[start : start + size] = [f"{stars}{' '.join(words[start : start + size])}{stars}"]
        lines[at] = " ".join(words)
        return "\n".join(lines)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return self.marked.sub(lambda match: match[1], text, count=1)


class Placeholders(CountFamily):
    id: str = "detectable_content:number_placeholders"
    order: int = 55
    argument: ClassVar[str] = "num_placeholders"
    relation_argument: ClassVar[str] = ""
    counted: ClassVar[str] = r'len(re.findall(r"\[.*?\]", r))'

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([2, 2, 3, 3, 4, 5, 6, 7, 8])

    def count(self, text: str, given: Arguments) -> int:
        return len(re.findall(r"\[.*?\]", text))

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        name = pen.phrase("placeholders")
        name = name.upper() if pen.chance(0.1) else name
        lead = pen.rng.choice(
            ["Please ask [{}].", "See [{}] for more.", "Write to [{}].", "It is about [{}].", "[{}] is next."]
        )
        if pen.chance(0.5):
            lines = text.split("\n")
            places = [at for at, line in enumerate(lines) if is_prose(line)]
            if places:
                at = pen.rng.choice(places)
                words = lines[at].split(" ")
                words.insert(pen.rng.randint(1, len(words) - 1), f"[{name}]")
                lines[at] = " ".join(words)
                return "\n".join(lines)
        return insert_sentence(text, lead.format(name), pen.rng)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return re.sub(r"\[(.*?)\]", pen.rng.choice([r"\1", r"(\1)", r"{\1}", ""]), text, count=1)


class Paragraphs(CountFamily):
    id: str = "length_constraints:number_paragraphs"
    order: int = 30
    argument: ClassVar[str] = "num_paragraphs"
    relation_argument: ClassVar[str] = ""

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([2, 2, 3, 3, 4, 4, 5, 6])

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        if not _blank(given):
            return super().checks(given)
        return (Holds(lambda text: self.holds(text, given)),)

    def bounds(self, given: Arguments) -> tuple[int, int]:
        return given["n"], INFINITE if given["relation"] == ">b" else given["n"]

    def expression(self, given: Arguments) -> str:
        divider = '"\\n\\n"' if _blank(given) else '"***"'
        compared = ">=" if given["relation"] == ">b" else "=="
        return f"len([p for p in r.split({divider}) if p.strip()]) {compared} {given['n']}"

    def count(self, text: str, given: Arguments) -> int:
        divider = "\n\n" if _blank(given) else "***"
        return len([part for part in text.split(divider) if part.strip()])

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        return self._with(text, self.count(text, given) + 1, pen)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return self._with(text, max(1, self.count(text, given) - 1), pen)

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        more = pen.rng.choice([0, 0, 1, 2]) if given["relation"] == ">b" else 0
        return self._with(text, given["n"] + more, pen, "\n\n" if _blank(given) else "")

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        n = given["n"]
        if given["relation"] == ">b":
            return self._with(text, max(1, n - pen.rng.choice([1, 1, 2])), pen, "\n\n")
        if given["relation"] == "=b":
            return self._with(text, pen.rng.choice([max(1, n - 1), n + 1, n + 2]), pen, "\n\n")
        if pen.chance(0.35):
            return self._with(text, n, pen, pen.rng.choice(["\n\n", "\n\n---\n\n", "\n\n* * *\n\n", "\n\n"]))
        return self._with(text, pen.rng.choice([max(1, n - 1), n + 1, n + 1, n + 2]), pen)

    def _with(self, text: str, count: int, pen: Pen, divider: str = "") -> str:
        return (divider or pen.rng.choice(["\n\n***\n\n", "\n***\n"])).join(regroup(text, count, pen))


def _blank(given: Arguments) -> bool:
    """Return True if paragraphs are separated by blank lines instead of a divider."""
    return given["relation"] in ("=b", ">b")


class Sections(CountFamily):
    id: str = "detectable_format:multiple_sections"
    order: int = 31
    argument: ClassVar[str] = "num_sections"
    relation_argument: ClassVar[str] = ""

    def others(self, text: str, pen: Pen) -> Arguments:
        # Any noun can number the sections, which the rare ones teach.
        rare = pen.rng.choice(pen.vocabulary).capitalize() if pen.chance(0.15) else ""
        return {"splitter": rare or pen.phrase("sections")}

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([2, 2, 3, 3, 4, 4, 5, 6])

    def verifier_arguments(self, given: Arguments) -> Arguments:
        return {"section_spliter": given["splitter"]}

    def counted_in(self, given: Arguments) -> str:
        return rf'len(re.findall(r"{given["splitter"]}\s?\d+", r))'

    def count(self, text: str, given: Arguments) -> int:
        return len(re.findall(rf"{given['splitter']}\s?\d+", text))

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        return self._with(text, self.count(text, given) + 1, given["splitter"], pen)

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return self._with(text, max(1, self.count(text, given) - 1), given["splitter"], pen)

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        extra = pen.rng.choice([0, 0, 0, 1, 2])
        return self._with(text, self.bounds(given)[0] + extra, given["splitter"], pen)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        needed = self.bounds(given)[0]
        if pen.chance(0.4):
            splitter = given["splitter"]
            wrong = pen.rng.choice([splitter.swapcase(), "Title", "Note", "#", f"{splitter} no."])
            return self._with(text, needed, wrong, pen)
        return self._with(text, max(1, needed - pen.rng.choice([1, 1, 2])), given["splitter"], pen)

    def _with(self, text: str, count: int, splitter: str, pen: Pen) -> str:
        # The headings of an earlier edit would be counted twice.
        old = re.compile(r"^\W*[\w.]*( no\.)? ?\d+\W*(?= |$)", re.MULTILINE)
        style = pen.rng.choice(["{} {}\n{}", "{} {}\n\n{}", "{} {}: {}", "**{} {}**\n{}", "## {} {}\n{}"])
        parts = regroup(old.sub("", text), count, pen)
        return "\n\n".join(style.format(splitter, at, part) for at, part in enumerate(parts, 1))

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {**super().fields(given, rng), "splitter": given["splitter"]}


class NthParagraph(Family):
    id: str = "length_constraints:nth_paragraph_first_word"
    order: int = 32

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        n = pen.rng.choice([2, 2, 3, 3, 4, 4, 5, 6])
        word = draw_word(text, pen, 0.3).split()[0]
        return {"n": n, "k": pen.rng.randint(1, n), "first": word}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        n, k, first = given["n"], given["k"], given["first"]
        return (open_verifier(self.id, num_paragraphs=n, nth_paragraph=k, first_word=first),)

    def expression(self, given: Arguments) -> str:
        count = 'len([p for p in r.split("\\n\\n") if p.strip()])'
        place, first = given["k"] - 1, lowered(given["first"])
        opening = f'r.split("\\n\\n")[{place}].strip().lower().startswith({first})'
        return f"{count} == {given['n']} and {opening}"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return self._with(text, given["n"], given["k"], given["first"], pen)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        n, k, first = given["n"], given["k"], given["first"]
        how = pen.rng.random()
        if how < 0.3:
            return self._with(text, n, k, draw_word(text, pen, 0.5), pen)
        if how < 0.5:
            return self._with(text, n, k % n + 1, first, pen)
        if how < 0.65:
            return self._with(text, n, k, f"the {first}", pen)
        return self._with(text, max(k, n + pen.rng.choice([-1, 1, 2])), k, first, pen)

    def _with(self, text: str, count: int, place: int, word: str, pen: Pen) -> str:
        parts = regroup(text, count, pen)
        lead = pen.rng.choice(
            ["{} matters here.", "{} comes first.", "{}!", "{} is what I think of.", "{}, of course."]
        )
        written = word if pen.chance(0.1) else word[0].upper() + word[1:]
        parts[place - 1] = f"{lead.format(written)} {parts[place - 1]}"
        return "\n\n".join(parts)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        n, k = given["n"], given["k"]
        ordinal = _ORDINALS[k] if rng.random() < 0.7 else _SHORT_ORDINALS[k]
        number = NUMBERS[n] if rng.random() < 0.4 else str(n)
        return {"n": number, "k": str(k), "nth": ordinal, "first": quoted([given["first"]], "", rng)}


def _shorter(text: str, pen: Pen) -> str:
    """Return the text without one sentence, or without its last line if it has no prose to spare."""
    changed = remove_sentence(text, pen.rng)
    if changed != text:
        return changed
    head, _, tail = text.rstrip().rpartition("\n")
    if head.strip():
        return head.rstrip()
    parts = sentences(tail)
    if len(parts) > 1:
        return " ".join(parts[:-1])
    words = tail.split()
    return " ".join(words[:-1]) + "." if len(words) > 3 else text
