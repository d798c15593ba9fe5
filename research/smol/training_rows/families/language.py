"""The families about the language and the letter case of the whole response."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from research.smol.training_rows.families.base import Arguments, Family
from research.smol.training_rows.families.keywords import literal
from research.smol.training_rows.writing import Pen, language_sentences, sections, sentences
from tirjudge_environments.instruction_checks import Verifier, open_verifier

_NOT_LATIN = "sum(ord(c) > 591 for c in r) > len(r) / 4"
"""True if more than a quarter of the characters come after the Latin letters, which end at 591 in Unicode.

A small model learns this one expression for all other alphabets, but not the range of each of them.
"""


class ResponseLanguage(Family):
    id: str = "language:response_language"
    order: int = 1

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        code, name, often = (part.strip() for part in pen.rng.choice(list(sections("languages"))).split("|"))
        return {"code": code, "language": name, "frequent": often.split()}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id, language=given["code"]),)

    def holds(self, text: str, given: Arguments) -> bool:
        # The detector is slow; the sentences of the text tell what was written.
        own = set(language_sentences()[given["language"]])
        return sum(text.count(sentence) * len(sentence) for sentence in own) > len(text) / 2

    def expression(self, given: Arguments) -> str:
        if not given["frequent"]:
            return _NOT_LATIN
        return f"sum(w in r.lower().split() for w in {literal(given['frequent'])}) >= 2"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return self._text(given["language"], text, pen)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        if pen.chance(0.3):
            others = [
                name.strip()
                for _, name, often in (heading.split("|") for heading in sections("languages"))
                # The program does not tell languages apart whose letters are not Latin.
                if often.split() != given["frequent"]
            ]
            return self._text(pen.rng.choice(others), text, pen)
        own = language_sentences()[given["language"]]
        english = [pen.sentence() for _ in range(pen.rng.randint(3, 8))]
        if any(sentence in text for sentence in own) or not text.isascii():
            text = " ".join(english)
        return f"{pen.rng.choice(own)} {text}" if pen.chance(0.2) else text

    def _text(self, language: str, text: str, pen: Pen) -> str:
        own = list(language_sentences()[language])
        count = max(3, min(2 * len(own), len(sentences(text))))
        found = [*pen.rng.sample(own, len(own)), *pen.rng.sample(own, len(own))][:count]
        size = pen.rng.choice([2, 3, 4])
        return "\n\n".join(" ".join(found[at : at + size]) for at in range(0, len(found), size))

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {"language": given["language"]}


class LetterCase(Family):
    """Both families of letter case."""

    order: int = 80
    method: ClassVar[str]
    change: ClassVar[str]

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id),)

    def holds(self, text: str, given: Arguments) -> bool:
        # The verifier also detects the language, which is English here and slow to detect.
        return bool(getattr(text, self.method)())

    def expression(self, given: Arguments) -> str:
        return f"r.{self.method}()"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return str(getattr(text, self.change)())

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        parts = re.split(r"(\s+)", text)
        places = [at for at, part in enumerate(parts) if len(part) > 2 and part.isalpha()]
        for at in pen.rng.sample(places, min(len(places), pen.rng.choice([1, 1, 2, 4]))):
            parts[at] = parts[at].capitalize()
        return "".join(parts)


class EnglishCapital(LetterCase):
    id: str = "change_case:english_capital"
    method: ClassVar[str] = "isupper"
    change: ClassVar[str] = "upper"


class EnglishLowercase(LetterCase):
    id: str = "change_case:english_lowercase"
    method: ClassVar[str] = "islower"
    change: ClassVar[str] = "lower"
