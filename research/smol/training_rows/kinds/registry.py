"""All composed kinds of rules by name and group, and those that no training row contains.

A group is what the rules of its kinds are about. The held-out kinds and groups were drawn by a seed before any
training; the draw leaves out groups to which one of the 31 families belongs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

from research.smol.training_rows.kinds.characters import CHARACTERS
from research.smol.training_rows.kinds.documents import DOCUMENTS
from research.smol.training_rows.kinds.properties import (
    Begins,
    Capitalised,
    CharacterLength,
    Computed,
    Contains,
    EndsWithLetters,
    EndsWithMark,
    HasDigit,
    HasInner,
    HasMark,
    IsWord,
    Lacks,
    LastWord,
    Lower,
    NoDigit,
    NoMark,
    Property,
    SentenceLength,
    SmallFirst,
    StartsWithLetter,
    StartsWithPattern,
    StartsWithWord,
    Upper,
    WordLength,
)
from research.smol.training_rows.kinds.shapes import Asked, Count, Distinct, Every, Kind, Placed, Some, Sorted
from research.smol.training_rows.kinds.texts import TEXTS
from research.smol.training_rows.kinds.units import (
    HEADINGS,
    ITEMS,
    LINES,
    NUMBERS,
    PARAGRAPHS,
    SENTENCES,
    STEPS,
    TOKENS,
    UNITS,
    WORDS,
    Unit,
)
from research.smol.training_rows.writing import Pen

SEED = 56
"""Seed of the held-out kinds and groups."""
HELD_OUT_KINDS, HELD_OUT_GROUPS = 24, 2
TRAINED_BEFORE = {"words", "letters", "alphabets", "case", "lengths", "structure", "markup", "template", "json", "position", "punctuation"}
"""Groups to which one of the 31 families belongs."""
_SMALLEST_GROUP = 4

_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("emails", "links", "hashtags", "mentions", "files"), "addresses"),
    **dict.fromkeys(("dates", "times", "years", "phones", "versions", "prices", "colours"), "values"),
    **dict.fromkeys(("numbers", "percents", "fractions", "decimals", "ordinals", "ranges"), "arithmetic"),
    **dict.fromkeys(("weights", "distances", "degrees"), "measures"),
    **dict.fromkeys(("quotes", "asides", "brackets", "hyphenated", "contractions"), "punctuation"),
    **dict.fromkeys(("bolds", "codes", "placeholders", "footnotes", "emoji"), "markup"),
    **dict.fromkeys(("checkboxes", "quoted_lines", "rows", "dividers", "speeches", "blocks", "headings"), "structure"),
    **dict.fromkeys(("acronyms", "shouted"), "case"),
    **dict.fromkeys(("cyrillic", "greek", "arabic", "hebrew", "hangul", "kana", "hanzi", "devanagari", "accents"), "alphabets"),
}

_YEAR = Begins("year", {f"{year}-": str(year) for year in range(2018, 2029)}, (
    "be in {value}|is in {value}", "fall in the year {value}|falls in the year {value}", "lie in {value}|lies in {value}",
    "have the year {value}|has the year {value}", "belong to the year {value}|belongs to the year {value}"))
_DOMAIN = Begins("domain", {one: f'"{one}"' for one in (".org", ".com", ".net", ".eu")}, (
    "end with {value}|ends with {value}", "end in {value}|ends in {value}", "have the ending {value}|has the ending {value}",
    "belong to a {value} domain|belongs to a {value} domain", "finish with {value}|finishes with {value}"), end=True)
_EXTENSION = Begins("extension", {one: f'"{one}"' for one in (".txt", ".pdf", ".csv", ".py")}, (
    "end with {value}|ends with {value}", "have the extension {value}|has the extension {value}", "be a {value} file|is a {value} file",
    "end in {value}|ends in {value}", "carry the ending {value}|carries the ending {value}"), end=True)
_MAJOR = Begins("major", {f"{number}.": str(number) for number in range(1, 8)}, (
    "have the major number {value}|has the major number {value}", "start with {value}.|starts with {value}.", "belong to release {value}|belongs to release {value}",
    "be a {value}.x version|is a {value}.x version", "begin with the number {value}|begins with the number {value}"))
_CURRENCY = Begins("currency", {"$": "dollars ($)", "€": "euros (€)", "£": "pounds (£)"}, (
    "be in {value}|is in {value}", "be given in {value}|is given in {value}", "use {value}|uses {value}",
    "be stated in {value}|is stated in {value}", "be an amount in {value}|is an amount in {value}"))
_PREFIX = Begins("prefix", {f"{code}-": code for code in ("555", "212", "800", "900", "321")}, (
    "start with {value}|starts with {value}", "have the prefix {value}|has the prefix {value}", "begin with {value}|begins with {value}",
    "have the area code {value}|has the area code {value}", "carry the code {value} in front|carries the code {value} in front"))
_EVEN = Computed("even", "{} % 2 == 0", lambda n, g: not n & 1, (
    "be even|is even", "be an even number|is an even number", "be divisible by two|is divisible by two", "be a multiple of 2|is a multiple of 2", "not be odd|is not odd"))
_ODD = Computed("odd", "{} % 2 == 1", lambda n, g: bool(n & 1), (
    "be odd|is odd", "be an odd number|is an odd number", "not be divisible by two|is not divisible by two", "not be even|is not even", "leave a remainder of 1 when divided by 2|leaves a remainder of 1 when divided by 2"))
_MULTIPLE = Computed("multiple", "{} % {value} == 0", lambda n, g: n // g["value"] * g["value"] == n, (
    "be a multiple of {value}|is a multiple of {value}", "be divisible by {value}|is divisible by {value}", "divide evenly by {value}|divides evenly by {value}",
    "be in the table of {value}|is in the table of {value}", "leave no remainder when divided by {value}|leaves no remainder when divided by {value}"),
    lambda pen: {"value": pen.rng.choice([3, 4, 5, 10])})
_BELOW = Computed("below", "{} <= {value}", lambda n, g: not n > g["value"], (
    "be at most {value}|is at most {value}", "not be larger than {value}|is not larger than {value}", "be {value} or less|is {value} or less",
    "not exceed {value}|does not exceed {value}", "be no greater than {value}|is no greater than {value}"), lambda pen: {"value": pen.rng.choice([10, 12, 20, 25, 30, 50, 100])})
_BETWEEN = Computed("between", "{low} <= {} <= {value}", lambda n, g: n in range(g["low"], g["value"] + 1), (
    "be between {value}|is between {value}", "lie between {value}|lies between {value}", "stay between {value}|stays between {value}",
    "be in the range between {value}|is in the range between {value}", "have a value between {value}|has a value between {value}"),
    lambda pen: {"low": (low := pen.rng.choice([1, 5, 10, 20])), "value": low + pen.rng.choice([5, 10, 20, 30])})
_CLOCK = StartsWithPattern("clock", r're.match(r"\d\d:\d\d ", {}) is not None', r"\d\d:\d\d ", (
    "start with a time such as 09:30|starts with a time such as 09:30", "begin with the time (HH:MM)|begins with the time (HH:MM)", "open with a clock time like 14:05|opens with a clock time like 14:05",
    "have the time, as in 08:15, at its start|has the time, as in 08:15, at its start", "be stamped with the time (HH:MM) at the beginning|is stamped with the time (HH:MM) at the beginning"),
    lambda pen: f"{pen.rng.randint(6, 22):02}:{pen.rng.choice(['00', '15', '30', '45'])}", lambda pen: pen.rng.choice(["9:15", "Noon:", "", "(08:30)"]))
_EMOJI = StartsWithPattern("emoji", '"\U0001f300" <= {}[:1] <= "\U0001faff"', "[\U0001f300-\U0001faff]", (
    "start with an emoji|starts with an emoji", "begin with an emoji|begins with an emoji", "open with an emoji|opens with an emoji",
    "have an emoji as its first character|has an emoji as its first character", "lead with an emoji|leads with an emoji"),
    lambda pen: pen.rng.choice("😀🎉🚀🌍🍎🐶🌻🔥🎁🏠"), lambda pen: pen.rng.choice(["", "*", ":)", "So"]))


def _every() -> Iterator[Asked]:
    asked: Mapping[Unit, Sequence[tuple[Property, str]]] = {
        SENTENCES: ((WordLength(), "lengths"), (EndsWithMark(), "punctuation"), (Contains(), "words"), (HasDigit(), "arithmetic"), (NoMark(), "punctuation"), (CharacterLength(), "lengths")),
        LINES: (
            *((WordLength(), "lengths"), (CharacterLength(), "lengths"), (StartsWithLetter(), "letters"), (EndsWithMark(), "punctuation"), (Contains(), "words")),
            *((Upper(), "case"), (Lower(), "case"), (Capitalised(), "case"), (SmallFirst(), "case"), (HasMark(), "punctuation"), (NoDigit(), "arithmetic")),
            *((_CLOCK, "values"), (_EMOJI, "markup"), (LastWord(), "words")),
        ),
        PARAGRAPHS: (
            *((WordLength(), "lengths"), (CharacterLength(), "lengths"), (StartsWithWord(), "position"), (Contains(), "words"), (HasDigit(), "arithmetic")),
            *((EndsWithMark(), "punctuation"), (StartsWithLetter(), "letters"), (SentenceLength(), "lengths"), (HasInner(UNITS["emoji"]), "markup"), (HasInner(UNITS["links"]), "addresses"), (Lacks(), "words")),
        ),
        ITEMS: (
            *((WordLength(), "lengths"), (Capitalised(), "case"), (SmallFirst(), "case"), (EndsWithMark(), "punctuation"), (HasMark(), "punctuation"), (StartsWithLetter(), "letters")),
            *((HasDigit(), "arithmetic"), (NoMark(), "punctuation"), (StartsWithWord(), "position"), (HasInner(UNITS["bolds"]), "markup"), (HasInner(UNITS["prices"]), "values"), (Contains(), "words")),
        ),
        STEPS: ((WordLength(), "lengths"), (Capitalised(), "case"), (EndsWithMark(), "punctuation"), (HasInner(UNITS["times"]), "values"), (HasDigit(), "arithmetic"), (NoMark(), "punctuation")),
        HEADINGS: ((WordLength(), "lengths"), (Upper(), "case"), (EndsWithMark(), "punctuation"), (NoMark(), "punctuation"), (HasDigit(), "arithmetic"), (Lower(), "case")),
        WORDS: ((CharacterLength(), "lengths"),),
        NUMBERS: ((_EVEN, "arithmetic"), (_ODD, "arithmetic"), (_MULTIPLE, "arithmetic"), (_BELOW, "arithmetic"), (_BETWEEN, "arithmetic")),
        UNITS["dates"]: ((_YEAR, "values"),),
        UNITS["emails"]: ((_DOMAIN, "addresses"), (Lower(), "addresses")),
        UNITS["files"]: ((_EXTENSION, "addresses"),),
        UNITS["versions"]: ((_MAJOR, "values"),),
        UNITS["prices"]: ((_CURRENCY, "values"),),
        UNITS["phones"]: ((_PREFIX, "values"),),
        UNITS["hashtags"]: ((Lower(), "addresses"),),
        UNITS["quotes"]: ((WordLength(), "lengths"),),
        UNITS["asides"]: ((WordLength(), "lengths"),),
        UNITS["bolds"]: ((Upper(), "case"),),
    }
    for unit, found in asked.items():
        yield from (Every(unit, one, group) for one, group in found)


def _some() -> Iterator[Asked]:
    asked: Mapping[Unit, Sequence[tuple[Property, str]]] = {
        SENTENCES: ((EndsWithMark(), "punctuation"), (Contains(), "words"), (HasDigit(), "arithmetic"), (WordLength(), "lengths"), (StartsWithWord(), "position"), (HasMark(), "punctuation")),
        WORDS: ((CharacterLength(), "lengths"), (StartsWithLetter(), "letters"), (EndsWithLetters(), "letters")),
        LINES: ((Upper(), "case"), (EndsWithMark(), "punctuation"), (HasDigit(), "arithmetic"), (Contains(), "words")),
        PARAGRAPHS: ((Contains(), "words"), (WordLength(), "lengths"), (HasDigit(), "arithmetic")),
        ITEMS: ((EndsWithMark(), "punctuation"), (HasDigit(), "arithmetic"), (HasInner(UNITS["bolds"]), "markup"), (Contains(), "words")),
        NUMBERS: ((_EVEN, "arithmetic"), (_BELOW, "arithmetic")),
    }
    for unit, found in asked.items():
        yield from (Some(unit, one, group) for one, group in found)


def _placed() -> Iterator[Asked]:
    asked: Sequence[tuple[str, Unit, Property, str]] = (
        ("first", SENTENCES, EndsWithMark(), "position"),
        ("first", SENTENCES, WordLength(), "lengths"),
        ("first", SENTENCES, Contains(), "position"),
        ("last", SENTENCES, EndsWithMark(), "position"),
        ("last", SENTENCES, Contains(), "position"),
        ("last", SENTENCES, WordLength(), "lengths"),
        ("last", SENTENCES, StartsWithWord(), "position"),
        ("second", SENTENCES, StartsWithWord(), "position"),
        ("third", SENTENCES, Contains(), "position"),
        ("penultimate", SENTENCES, EndsWithMark(), "position"),
        ("first", LINES, Upper(), "case"),
        ("first", LINES, EndsWithMark(), "position"),
        ("first", LINES, WordLength(), "lengths"),
        ("first", LINES, HasDigit(), "arithmetic"),
        ("last", LINES, IsWord(), "position"),
        ("last", LINES, Upper(), "case"),
        ("last", LINES, Contains(), "position"),
        ("second", LINES, Contains(), "position"),
        ("first", PARAGRAPHS, SentenceLength(), "lengths"),
        ("first", PARAGRAPHS, Contains(), "position"),
        ("last", PARAGRAPHS, Contains(), "position"),
        ("last", PARAGRAPHS, WordLength(), "lengths"),
        ("last", PARAGRAPHS, HasInner(UNITS["links"]), "addresses"),
        ("second", PARAGRAPHS, Contains(), "position"),
        ("second", PARAGRAPHS, EndsWithMark(), "position"),
        ("third", PARAGRAPHS, StartsWithWord(), "position"),
        ("last", WORDS, IsWord(), "position"),
        ("second", WORDS, IsWord(), "position"),
        ("third", WORDS, IsWord(), "position"),
        ("first", ITEMS, Contains(), "position"),
        ("last", ITEMS, EndsWithMark(), "position"),
        ("first", HEADINGS, Contains(), "position"),
    )
    yield from (Placed(place, unit, one, group) for place, unit, one, group in asked)


def _ordered() -> Iterator[Kind]:
    def lower(part: str) -> object:
        return part.casefold()

    def size(part: str) -> object:
        return len(part)

    def integer(part: str) -> object:
        return int(part)

    def amount(part: str) -> object:
        return int(part[1:])

    alphabet = ("alphabetically", "in alphabetical order", "from a to z", "by alphabet, a first", "in the order of the alphabet")
    backwards = ("in reverse alphabetical order", "from z to a", "alphabetically, but backwards", "by alphabet with z first", "in descending alphabetical order")
    longer = ("from the shortest to the longest", "by length, the shortest first", "so that none is shorter than the one before", "by their number of characters, ascending", "with the longest at the end")
    shorter = ("from the longest to the shortest", "by length, the longest first", "so that none is longer than the one before", "by their number of characters, descending", "with the shortest at the end")
    rising = ("in ascending order", "from small to large", "from the smallest to the largest", "so that they never go down", "with the smallest first")
    falling = ("in descending order", "from large to small", "from the largest to the smallest", "so that they never go up", "with the largest first")
    early = ("in chronological order", "from the earliest to the latest", "by time, the earliest first", "so that none is earlier than the one before", "from old to new")
    late = ("in reverse chronological order", "from the latest to the earliest", "with the latest first", "so that none is later than the one before", "from new to old")
    yield Sorted("items_alphabet", ITEMS, "order", alphabet, "key=str.lower", lower)
    yield Sorted("items_backwards", ITEMS, "order", backwards, "key=str.lower", lower, down=True)
    yield Sorted("items_longer", ITEMS, "order", longer, "key=len", size)
    yield Sorted("items_shorter", ITEMS, "order", shorter, "key=len", size, down=True)
    yield Sorted("lines_alphabet", LINES, "order", alphabet, "key=str.lower", lower)
    yield Sorted("lines_longer", LINES, "order", longer, "key=len", size)
    yield Sorted("lines_shorter", LINES, "order", shorter, "key=len", size, down=True)
    yield Sorted("headings_alphabet", HEADINGS, "order", alphabet, "key=str.lower", lower)
    yield Sorted("paragraphs_longer", PARAGRAPHS, "order", longer, "key=len", size)
    yield Sorted("numbers_rising", NUMBERS, "order", rising, "key=int", integer)
    yield Sorted("numbers_falling", NUMBERS, "order", falling, "key=int", integer, down=True)
    yield Sorted("dates_early", UNITS["dates"], "order", early, "", lower)
    yield Sorted("dates_late", UNITS["dates"], "order", late, "", lower, down=True)
    yield Sorted("years_early", UNITS["years"], "order", early, "key=int", integer)
    yield Sorted("prices_rising", UNITS["prices"], "order", rising, "key=lambda p: int(p[1:])", amount)


def _head(part: str) -> str:
    return part.split()[0].casefold() if part.split() else ""


def _distinct() -> Iterator[Kind]:
    def renew(part: str, pen: Pen) -> str:
        return f"{pen.rng.choice(pen.vocabulary).capitalize()} {part.partition(' ')[2]}".strip()

    def reuse(first: str, other: str, pen: Pen) -> str:
        return f"{first.split()[0]} {other.partition(' ')[2]}".strip()

    def same(first: str, other: str, pen: Pen) -> str:
        return first

    def number(part: str, pen: Pen) -> str:
        return str(pen.rng.randint(2, 400))

    heads = "{}.split()[0].lower()"
    yield Distinct("sentences_heads", SENTENCES, "words", (
        "No two sentences may begin with the same word", "Every sentence must start with another word", "Start each sentence with a different word",
        "The first words of the sentences must all be different", "Never begin two sentences with the same word"), heads, _head, reuse, renew)
    yield Distinct("lines_heads", LINES, "words", (
        "No two lines may begin with the same word", "Every line must start with another word", "Start each line with a different word",
        "The first words of the lines must all be different", "Never begin two lines with the same word"), heads, _head, reuse, renew)
    yield Distinct("items_heads", ITEMS, "words", (
        "No two bullet points may begin with the same word", "Every bullet must start with another word", "Start each list item with a different word",
        "The first words of the bullet points must all be different", "Write bullet points and never begin two of them with the same word"), heads, _head, reuse, renew)
    yield Distinct("paragraphs_heads", PARAGRAPHS, "words", (
        "No two paragraphs may begin with the same word", "Every paragraph must start with another word", "Start each paragraph with a different word",
        "The first words of the paragraphs must all be different", "Never begin two paragraphs with the same word"), heads, _head, reuse, renew)
    yield Distinct("lines_letters", LINES, "letters", (
        "No two lines may begin with the same letter", "Every line must start with another letter", "Start each line with a different letter",
        "The first letters of the lines must all be different", "Never begin two lines with the same letter"), "{}[0].lower()", lambda part: part[:1].casefold(), reuse, renew)
    yield Distinct("numbers", NUMBERS, "arithmetic", (
        "Use numbers, but no number twice", "No number may come more than once, and there must be some", "All numbers in the text must be different",
        "Give some numbers and repeat none of them", "Every number you write should be a new one"), "{}", lambda part: part, same, number)
    yield Distinct("hashtags", UNITS["hashtags"], "addresses", (
        "Use hashtags, but no hashtag twice", "No hashtag may come more than once, and there must be some", "All hashtags must be different",
        "Add some hashtags and repeat none of them", "Every hashtag you write should be a new one"), "{}.lower()", lambda part: part.casefold(), same, lambda part, pen: UNITS["hashtags"].new(pen))


def all_kinds() -> Iterator[Kind]:
    """Yield every composed kind."""
    yield from (Count(unit, _GROUPS[unit.name]) for unit in (*TOKENS, HEADINGS))
    yield from CHARACTERS
    yield from _every()
    yield from _some()
    yield from _placed()
    yield from _ordered()
    yield from _distinct()
    yield from TEXTS
    for rules in DOCUMENTS.values():
        yield from rules


KINDS: Mapping[str, Kind] = {kind.id: kind for kind in all_kinds()}
DOCUMENT: Mapping[str, str] = {rule.id: name for name, rules in DOCUMENTS.items() for rule in rules}
"""The kind of document of each kind that is about one."""


def draw_held_out(seed: int = SEED) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the kinds and the groups that no training row contains, both sorted by name.

    The kinds are drawn from the other groups.
    """
    rng = random.Random(f"held-out kinds/{seed}")
    groups: dict[str, list[str]] = {}
    for kind in KINDS.values():
        groups.setdefault(kind.group, []).append(kind.id)
    whole = sorted(name for name, kinds in groups.items() if name not in TRAINED_BEFORE and len(kinds) >= _SMALLEST_GROUP)
    left_out = tuple(sorted(rng.sample(whole, HELD_OUT_GROUPS)))
    others = sorted(kind.id for kind in KINDS.values() if kind.group not in left_out)
    return tuple(sorted(rng.sample(others, HELD_OUT_KINDS))), left_out


def trained_kinds(seed: int = SEED) -> list[str]:
    """Return the composed kinds that training rows may contain, sorted by name."""
    kinds, groups = draw_held_out(seed)
    return sorted(kind.id for kind in KINDS.values() if kind.id not in kinds and kind.group not in groups)
