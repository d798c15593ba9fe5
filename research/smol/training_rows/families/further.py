"""Six families that IFEval does not have, with verifiers of their own: lists, lines, beginnings and marks."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from research.smol.training_rows.families.base import Arguments, CountFamily, Family, Holds
from research.smol.training_rows.families.keywords import literal, lowered
from research.smol.training_rows.writing import Pen, insert_sentence, regroup, sections, sentences
from tirjudge_environments.instruction_checks import Verifier

_MARKS = {"!": "exclamation mark", "?": "question mark", ";": "semicolon", "-": "hyphen"}


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


class OwnCount(CountFamily):
    """A family of our own that compares a count with a number."""

    argument: ClassVar[str] = ""

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (Holds(lambda text: self.holds(text, given)),)


class NumberedList(OwnCount):
    id: str = "own:numbered_list"
    order: int = 26
    counted: ClassVar[str] = r'len(re.findall(r"^\s*\d+[.)]", r, re.M))'
    item: ClassVar[re.Pattern[str]] = re.compile(r"^[^\S\n]*\d+[.)].*$", re.MULTILINE)

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([3, 3, 4, 5, 5, 6, 7, 8, 10])

    def count(self, text: str, given: Arguments) -> int:
        return len(re.findall(r"^\s*\d+[.)]", text, re.MULTILINE))

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        found = list(self.item.finditer(text))
        if found:
            end = found[-1].end()
            return f"{text[:end]}\n{len(found) + 1}. {pen.sentence()}{text[end:]}"
        bullets = re.compile(r"^[^\S\n]*[-*] ", re.MULTILINE)
        if bullets.search(text) and pen.chance(0.7):
            numbers = iter(range(1, 1000))
            return bullets.sub(lambda match: f"{next(numbers)}. ", text)
        return f"{text}\n\n1. {pen.sentence()}"

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        found = list(self.item.finditer(text))
        if len(found) > 2 and pen.chance(0.15):
            return self.item.sub(lambda match: re.sub(r"\d+[.)]", "-", match[0], count=1), text)
        one = found[-1]
        return f"{text[: one.start()].rstrip(' ')}{text[one.end() :].removeprefix(chr(10))}"


class NumberLines(OwnCount):
    id: str = "own:number_lines"
    order: int = 33
    counted: ClassVar[str] = 'len([l for l in r.split("\\n") if l.strip()])'

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([2, 3, 4, 4, 5, 6, 8, 10])

    def count(self, text: str, given: Arguments) -> int:
        return len(_lines(text))

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        return f"{text}\n{pen.sentence()}"

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        return "\n".join(_lines(text)[:-1])

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        low, high = self.bounds(given)
        return self._with(text, pen.rng.randint(max(1, low), min(high, max(low, 1) + 4)), pen)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        low, high = self.bounds(given)
        wrong = [high + 1, high + 1, high + 2] if low == 0 else [low - 1]
        wrong += [high + 1] if low == high else []
        return self._with(text, max(1, pen.rng.choice(wrong)), pen)

    def _with(self, text: str, count: int, pen: Pen) -> str:
        return pen.rng.choice(["\n", "\n", "\n\n"]).join(regroup(text, count, pen))


class LineStart(Family):
    id: str = "own:line_start"
    order: int = 85

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {
            "mark": pen.rng.choice(["#", ">", "-", "*", "+", "~", "=>", "Line:", "Note:", "->", "1.", "@"])
        }

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (Holds(lambda text: all(line.startswith(given["mark"]) for line in _lines(text))),)

    def expression(self, given: Arguments) -> str:
        return f'all(l.startswith({literal(given["mark"])}) for l in r.split("\\n") if l.strip())'

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        mark = given["mark"]
        return "\n".join(
            line if line.startswith(mark) else f"{mark} {line.lstrip()}" for line in _lines(text)
        )

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        mark = given["mark"]
        lines = _lines(self.follow(text, given, pen))
        at = pen.rng.randrange(len(lines))
        bare = lines[at].removeprefix(mark).strip()
        other = pen.rng.choice(["", "", "- ", "# ", "* ", "> "])
        lines[at] = f"{'' if other.startswith(mark) else other}{bare}"
        return "\n".join(lines) if pen.chance(0.6) else "\n".join(line.removeprefix(mark) for line in lines)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {"mark": rng.choice(['"{}"', "'{}'", "{}", "`{}`"]).format(given["mark"])}


class ParagraphSentences(OwnCount):
    """The largest number of sentences in a paragraph."""

    id: str = "own:paragraph_sentences"
    order: int = 34

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return pen.rng.choice([2, 3, 3, 4, 5])

    def count(self, text: str, given: Arguments) -> int:
        parts = [part for part in text.split("\n\n") if part.strip()]
        return max((len(re.split(r"(?<=[.!?])\s+", part.strip())) for part in parts), default=0)

    def expression(self, given: Arguments) -> str:
        longest = self.bounds(given)[1]
        split = r'len(re.split(r"(?<=[.!?])\s+", p.strip()))'
        return f'all({split} <= {longest} for p in r.split("\\n\\n") if p.strip())'

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        head, gap, tail = text.partition("\n\n")
        return f"{head} {pen.sentence()}{gap}{tail}"

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        most = self.bounds(given)[1]
        found = []
        for part in text.split("\n\n"):
            parts = sentences(part)
            found += [" ".join(parts[at : at + most]) for at in range(0, len(parts), most)]
        return "\n\n".join(found)


class StartPhrase(Family):
    id: str = "own:start_phrase"
    order: int = 73

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        own = [line for line in sections("topics")[pen.area] if len(line.split()) < 9 and line[:2] != "t:"]
        kind = pen.rng.choice(["starts", "starts", "openers", "title"])
        phrase = pen.rng.choice(own) if own and pen.chance(0.3) else pen.phrase(kind)
        return {"phrase": phrase.replace("{topic}", pen.topic)}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (Holds(lambda text: text.strip().lower().startswith(given["phrase"].lower())),)

    def expression(self, given: Arguments) -> str:
        return f"r.strip().lower().startswith({lowered(given['phrase'])})"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return f"{given['phrase']}{pen.rng.choice([' ', ' ', chr(10) * 2])}{text}"

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        phrase = given["phrase"]
        text = text.strip().removeprefix(phrase).strip()
        words = phrase.split()
        wrong = [
            *("", "", f"{pen.phrase('openers')} {phrase}", f'"{phrase}"', f"**{phrase}**"),
            *(pen.phrase("starts"), " ".join(words[1:]), " ".join([*words[:-1], "well"])),
        ]
        text = f"{pen.rng.choice(wrong)} {text}".strip()
        return f"{text}\n\n{phrase}" if pen.chance(0.2) else text

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {"phrase": given["phrase"]}


class NoMark(Family):
    id: str = "own:no_mark"
    order: int = 79

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {"mark": pen.rng.choice(list(_MARKS))}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (Holds(lambda text: given["mark"] not in text),)

    def expression(self, given: Arguments) -> str:
        return f"{literal(given['mark'])} not in r"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return text.replace(given["mark"], {"!": ".", "?": ".", ";": ",", "-": " "}[given["mark"]])

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        mark = given["mark"]
        added = {
            "!": ["Try it!", "What a day!", "You will like it!"],
            "?": ["Why not?", "Is that all?", "Who knows?"],
            ";": ["It is cheap; it works.", "Some agree; others do not."],
            "-": ["It is a well-known idea.", "That is a long-term plan.", "It helps - a little."],
        }[mark]
        return insert_sentence(text, pen.rng.choice(added), pen.rng)

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        mark, name = given["mark"], _MARKS[given["mark"]]
        return {"name": name, "names": f"{name}s", "mark": rng.choice([mark, f'"{mark}"', f"({mark})"])}
