"""Kinds of rules that count characters: marks, digits, vowels, capitals, and all of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

from research.smol.training_rows.families.base import Arguments, CountFamily, Form
from research.smol.training_rows.kinds.shapes import Kind, frames, written_number
from research.smol.training_rows.kinds.units import WORDS
from research.smol.training_rows.writing import Pen, insert_sentence, remove_sentence
from tirjudge_environments.instruction_checks import Verifier


class Characters(CountFamily, Kind):
    """The number of characters of a sort in a text."""

    shape = "count"
    argument = ""

    def __init__(
        self,
        name: str,
        group: str,
        nouns: Sequence[str],
        code: str,
        counts: Callable[[str], int],
        numbers: Sequence[int],
        added: Sequence[str],
        taken: str = "",
        uses: Sequence[str] = (),
        order: int = 47,
    ) -> None:
        """`added` are texts that hold one more such character, `taken` a pattern of what is removed."""
        self.nouns, self.code, self.counts, self.numbers = nouns, code, counts, numbers
        self.added, self.taken, self.used, self.order = added, taken, uses, order
        Kind.__init__(self, name, group)

    def wordings(self, form: Form | None = None) -> Sequence[tuple[str, str]]:
        # No commas at all is a family of IFEval.
        return [
            one
            for one in frames("count", form)
            if one[0] != "=0" or (self.taken and self.id != "count:commas")
        ]

    def definitions(self, given: Arguments) -> Sequence[str]:
        return self.used

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        n = pen.rng.choice(self.numbers)
        return {"relation": relation, "n": n, "b": n + max(1, round(n * pen.rng.choice([0.25, 0.5])))}

    def number(self, relation: str, text: str, given: Arguments, pen: Pen) -> int:
        return int(given["n"])

    def count(self, text: str, given: Arguments) -> int:
        return self.counts(text)

    def counted_in(self, given: Arguments) -> str:
        return self.code

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return Kind.checks(self, given)

    def holds(self, text: str, given: Arguments) -> bool:
        return CountFamily.holds(self, text, given)

    def add(self, text: str, given: Arguments, pen: Pen) -> str:
        low, _ = self.bounds(given)
        if low - self.counts(text) > 40:
            return insert_sentence(text, pen.sentence(), pen.rng)
        piece = pen.rng.choice(self.added).replace("{}", pen.word())
        places = [match.end() for match in re.finditer(r"\w(?= )", text)]
        at = pen.rng.choice(places) if places else len(text)
        return f"{text[:at]}{piece}{text[at:]}"

    def remove(self, text: str, given: Arguments, pen: Pen) -> str:
        _, high = self.bounds(given)
        if self.counts(text) - high > 40:
            shorter = remove_sentence(text, pen.rng)
            return shorter if shorter != text else " ".join(text.split(" ")[:-3])
        found = list(re.finditer(self.taken or r"\w(?=\w* )", text))
        if not found:
            return text
        start, end = pen.rng.choice(found).span()
        return f"{text[:start]}{text[end:]}"

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        one, _, many = rng.choice(self.nouns).partition("|")
        n = given["n"]
        return {
            "unit": one,
            "units": one if n == 1 and given["relation"] != ".." else many,
            "n": written_number(n, rng),
            "a": str(n),
            "b": str(given["b"]),
        }


def _mark(
    name: str, mark: str, nouns: str, added: Sequence[str], numbers: Sequence[int] = (1, 2, 2, 3, 4, 5)
) -> Characters:
    return Characters(
        name,
        "punctuation",
        nouns.split(", "),
        f"r.count({_quoted(mark)})",
        lambda text: sum(one == mark for one in text),
        numbers,
        added,
        re.escape(mark),
    )


def _quoted(mark: str) -> str:
    return f"'{mark}'" if mark == '"' else f'"{mark}"'


_LONG = (120, 150, 200, 250, 300, 350, 400, 500, 600)
CHARACTERS: tuple[Characters, ...] = (
    _mark("commas", ",", "comma|commas, comma (,)|commas (,)", [",", ", of course,"], (2, 3, 4, 5, 6, 8)),
    _mark("colons", ":", "colon|colons, colon (:)|colons (:)", [":", ", that is:"]),
    _mark("semicolons", ";", "semicolon|semicolons, semicolon (;)|semicolons (;)", [";", "; yes;"]),
    _mark(
        "question_marks",
        "?",
        "question mark|question marks, question mark (?)|question marks (?)",
        ["?", " (really?)"],
    ),
    _mark(
        "exclamations",
        "!",
        "exclamation mark|exclamation marks, exclamation point|exclamation points",
        ["!", " (yes!)"],
    ),
    _mark("full_stops", ".", "full stop|full stops, period|periods", ["."], (3, 4, 5, 6, 8)),
    _mark("hyphens", "-", "hyphen|hyphens, hyphen (-)|hyphens (-)", ["-like", " -"]),
    _mark("slashes", "/", "slash|slashes, slash (/)|slashes (/)", ["/{}", " and/or"]),
    _mark("ampersands", "&", "ampersand|ampersands, & sign|& signs", [" & {}", " &"]),
    _mark("dashes", "—", "em dash|em dashes, long dash (—)|long dashes (—)", [" —", " — {} —"]),
    _mark(
        "double_quotes",
        '"',
        'double quotation mark|double quotation marks, quotation mark (")|quotation marks (")',
        [' "{}"', '"'],
        (2, 2, 4, 4, 6),
    ),
    _mark("asterisks", "*", "asterisk|asterisks, * character|* characters", [" *", " *{}*"]),
    Characters(
        "digits",
        "arithmetic",
        ("digit|digits", "digit (0-9)|digits (0-9)", "numeral character|numeral characters"),
        "sum(c.isdigit() for c in r)",
        lambda text: len(re.findall(r"\d", text)),
        (2, 3, 4, 5, 6, 8),
        [" 7", " 4", "9"],
        r"\d",
    ),
    Characters(
        "capitals",
        "case",
        (
            "capital letter|capital letters",
            "uppercase letter|uppercase letters",
            "upper-case character|upper-case characters",
        ),
        "sum(c.isupper() for c in r)",
        lambda text: sum(one != one.lower() for one in text),
        (5, 8, 10, 12, 15, 20),
        [" Anna", " Tom", "X"],
        "[A-Z]",
    ),
    Characters(
        "vowels",
        "letters",
        ("vowel|vowels", "vowel (a, e, i, o, u)|vowels (a, e, i, o, u)"),
        'sum(c in "aeiou" for c in r.lower())',
        lambda text: len(re.findall("[aeiou]", text.lower())),
        (40, 60, 80, 100, 120, 150),
        [" a", "e", " o"],
        "[aeiou]",
    ),
    Characters(
        "characters",
        "lengths",
        (
            "character|characters",
            "character (with spaces)|characters (with spaces)",
            "character in total|characters in total",
        ),
        "len(r)",
        lambda text: sum(1 for _ in text),
        _LONG,
        [" {}", "s", " a"],
    ),
    Characters(
        "visible",
        "lengths",
        (
            "character without spaces|characters without spaces",
            "non-space character|non-space characters",
            "character not counting blanks|characters not counting blanks",
        ),
        "sum(not c.isspace() for c in r)",
        lambda text: len("".join(text.split())),
        _LONG,
        [" {}", "s", " a"],
    ),
    Characters(
        "letters",
        "letters",
        ("letter|letters", "letter of the alphabet|letters of the alphabet"),
        "sum(c.isalpha() for c in r)",
        lambda text: len([one for one in text if one.isalpha()]),
        _LONG,
        [" {}", "s", " a"],
    ),
    Characters(
        "distinct_words",
        "words",
        ("different word|different words", "distinct word|distinct words", "unique word|unique words"),
        "len(set(words(r.lower())))",
        lambda text: len({one.lower() for one in WORDS.parts(text)}),
        (20, 30, 40, 50, 60, 80),
        [" {}"],
        r"\w+ ",
        (WORDS.definition,),
    ),
)
