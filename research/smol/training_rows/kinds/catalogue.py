"""The kinds of rules that are composed of a shape, units and a property."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from research.smol.training_rows.kinds.cases import Capitalised, Lower, SmallFirst, Upper
from research.smol.training_rows.kinds.lengths import CharacterLength, SentenceLength, WordLength
from research.smol.training_rows.kinds.properties import (
    Contains,
    EndsWithLetters,
    EndsWithMark,
    HasDigit,
    HasInner,
    HasMark,
    IsWord,
    Lacks,
    LastWord,
    NoDigit,
    NoMark,
    Property,
    StartsWithLetter,
    StartsWithWord,
)
from research.smol.training_rows.kinds.shapes import Asked, Distinct, Every, Kind, Placed, Some, Sorted
from research.smol.training_rows.kinds.tokens import NUMBERS, UNITS
from research.smol.training_rows.kinds.units import (
    HEADINGS,
    ITEMS,
    LINES,
    PARAGRAPHS,
    SENTENCES,
    STEPS,
    WORDS,
    Unit,
)
from research.smol.training_rows.kinds.values import (
    BELOW,
    BETWEEN,
    CLOCK,
    CURRENCY,
    DOMAIN,
    EMOJI,
    EVEN,
    EXTENSION,
    MAJOR,
    MULTIPLE,
    ODD,
    PREFIX,
    YEAR,
)
from research.smol.training_rows.writing import Pen


def _every() -> Iterator[Asked]:
    asked: Mapping[Unit, Sequence[tuple[Property, str]]] = {
        SENTENCES: (
            (WordLength(), "lengths"),
            (EndsWithMark(), "punctuation"),
            (Contains(), "words"),
            (HasDigit(), "arithmetic"),
            (NoMark(), "punctuation"),
            (CharacterLength(), "lengths"),
        ),
        LINES: (
            *(
                (WordLength(), "lengths"),
                (CharacterLength(), "lengths"),
                (StartsWithLetter(), "letters"),
                (EndsWithMark(), "punctuation"),
                (Contains(), "words"),
            ),
            *(
                (Upper(), "case"),
                (Lower(), "case"),
                (Capitalised(), "case"),
                (SmallFirst(), "case"),
                (HasMark(), "punctuation"),
                (NoDigit(), "arithmetic"),
            ),
            *((CLOCK, "values"), (EMOJI, "markup"), (LastWord(), "words")),
        ),
        PARAGRAPHS: (
            *(
                (WordLength(), "lengths"),
                (CharacterLength(), "lengths"),
                (StartsWithWord(), "position"),
                (Contains(), "words"),
                (HasDigit(), "arithmetic"),
            ),
            *(
                (EndsWithMark(), "punctuation"),
                (StartsWithLetter(), "letters"),
                (SentenceLength(), "lengths"),
                (HasInner(UNITS["emoji"]), "markup"),
                (HasInner(UNITS["links"]), "addresses"),
                (Lacks(), "words"),
            ),
        ),
        ITEMS: (
            *(
                (WordLength(), "lengths"),
                (Capitalised(), "case"),
                (SmallFirst(), "case"),
                (EndsWithMark(), "punctuation"),
                (HasMark(), "punctuation"),
                (StartsWithLetter(), "letters"),
            ),
            *(
                (HasDigit(), "arithmetic"),
                (NoMark(), "punctuation"),
                (StartsWithWord(), "position"),
                (HasInner(UNITS["bolds"]), "markup"),
                (HasInner(UNITS["prices"]), "values"),
                (Contains(), "words"),
            ),
        ),
        STEPS: (
            (WordLength(), "lengths"),
            (Capitalised(), "case"),
            (EndsWithMark(), "punctuation"),
            (HasInner(UNITS["times"]), "values"),
            (HasDigit(), "arithmetic"),
            (NoMark(), "punctuation"),
        ),
        HEADINGS: (
            (WordLength(), "lengths"),
            (Upper(), "case"),
            (EndsWithMark(), "punctuation"),
            (NoMark(), "punctuation"),
            (HasDigit(), "arithmetic"),
            (Lower(), "case"),
        ),
        WORDS: ((CharacterLength(), "lengths"),),
        NUMBERS: (
            (EVEN, "arithmetic"),
            (ODD, "arithmetic"),
            (MULTIPLE, "arithmetic"),
            (BELOW, "arithmetic"),
            (BETWEEN, "arithmetic"),
        ),
        UNITS["dates"]: ((YEAR, "values"),),
        UNITS["emails"]: ((DOMAIN, "addresses"), (Lower(), "addresses")),
        UNITS["files"]: ((EXTENSION, "addresses"),),
        UNITS["versions"]: ((MAJOR, "values"),),
        UNITS["prices"]: ((CURRENCY, "values"),),
        UNITS["phones"]: ((PREFIX, "values"),),
        UNITS["hashtags"]: ((Lower(), "addresses"),),
        UNITS["quotes"]: ((WordLength(), "lengths"),),
        UNITS["asides"]: ((WordLength(), "lengths"),),
        UNITS["bolds"]: ((Upper(), "case"),),
    }
    for unit, found in asked.items():
        yield from (Every(unit, one, group) for one, group in found)


def _some() -> Iterator[Asked]:
    asked: Mapping[Unit, Sequence[tuple[Property, str]]] = {
        SENTENCES: (
            (EndsWithMark(), "punctuation"),
            (Contains(), "words"),
            (HasDigit(), "arithmetic"),
            (WordLength(), "lengths"),
            (StartsWithWord(), "position"),
            (HasMark(), "punctuation"),
        ),
        WORDS: (
            (CharacterLength(), "lengths"),
            (StartsWithLetter(), "letters"),
            (EndsWithLetters(), "letters"),
        ),
        LINES: (
            (Upper(), "case"),
            (EndsWithMark(), "punctuation"),
            (HasDigit(), "arithmetic"),
            (Contains(), "words"),
        ),
        PARAGRAPHS: ((Contains(), "words"), (WordLength(), "lengths"), (HasDigit(), "arithmetic")),
        ITEMS: (
            (EndsWithMark(), "punctuation"),
            (HasDigit(), "arithmetic"),
            (HasInner(UNITS["bolds"]), "markup"),
            (Contains(), "words"),
        ),
        NUMBERS: ((EVEN, "arithmetic"), (BELOW, "arithmetic")),
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

    alphabet = (
        "alphabetically",
        "in alphabetical order",
        "from a to z",
        "by alphabet, a first",
        "in the order of the alphabet",
    )
    backwards = (
        "in reverse alphabetical order",
        "from z to a",
        "alphabetically, but backwards",
        "by alphabet with z first",
        "in descending alphabetical order",
    )
    longer = (
        "from the shortest to the longest",
        "by length, the shortest first",
        "so that none is shorter than the one before",
        "by their number of characters, ascending",
        "with the longest at the end",
    )
    shorter = (
        "from the longest to the shortest",
        "by length, the longest first",
        "so that none is longer than the one before",
        "by their number of characters, descending",
        "with the shortest at the end",
    )
    rising = (
        "in ascending order",
        "from small to large",
        "from the smallest to the largest",
        "so that they never go down",
        "with the smallest first",
    )
    falling = (
        "in descending order",
        "from large to small",
        "from the largest to the smallest",
        "so that they never go up",
        "with the largest first",
    )
    early = (
        "in chronological order",
        "from the earliest to the latest",
        "by time, the earliest first",
        "so that none is earlier than the one before",
        "from old to new",
    )
    late = (
        "in reverse chronological order",
        "from the latest to the earliest",
        "with the latest first",
        "so that none is later than the one before",
        "from new to old",
    )
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
        return f"{pen.word().capitalize()} {part.partition(' ')[2]}".strip()

    def reuse(first: str, other: str, pen: Pen) -> str:
        return f"{first.split()[0]} {other.partition(' ')[2]}".strip()

    def same(first: str, other: str, pen: Pen) -> str:
        return first

    def number(part: str, pen: Pen) -> str:
        return str(pen.rng.randint(2, 400))

    heads = "{}.split()[0].lower()"
    yield Distinct(
        "sentences_heads",
        SENTENCES,
        "words",
        (
            "No two sentences may begin with the same word",
            "Every sentence must start with another word",
            "Start each sentence with a different word",
            "The first words of the sentences must all be different",
            "Never begin two sentences with the same word",
        ),
        heads,
        _head,
        reuse,
        renew,
    )
    yield Distinct(
        "lines_heads",
        LINES,
        "words",
        (
            "No two lines may begin with the same word",
            "Every line must start with another word",
            "Start each line with a different word",
            "The first words of the lines must all be different",
            "Never begin two lines with the same word",
        ),
        heads,
        _head,
        reuse,
        renew,
    )
    yield Distinct(
        "items_heads",
        ITEMS,
        "words",
        (
            "No two bullet points may begin with the same word",
            "Every bullet must start with another word",
            "Start each list item with a different word",
            "The first words of the bullet points must all be different",
            "Write bullet points and never begin two of them with the same word",
        ),
        heads,
        _head,
        reuse,
        renew,
    )
    yield Distinct(
        "paragraphs_heads",
        PARAGRAPHS,
        "words",
        (
            "No two paragraphs may begin with the same word",
            "Every paragraph must start with another word",
            "Start each paragraph with a different word",
            "The first words of the paragraphs must all be different",
            "Never begin two paragraphs with the same word",
        ),
        heads,
        _head,
        reuse,
        renew,
    )
    yield Distinct(
        "lines_letters",
        LINES,
        "letters",
        (
            "No two lines may begin with the same letter",
            "Every line must start with another letter",
            "Start each line with a different letter",
            "The first letters of the lines must all be different",
            "Never begin two lines with the same letter",
        ),
        "{}[0].lower()",
        lambda part: part[:1].casefold(),
        reuse,
        renew,
    )
    yield Distinct(
        "numbers",
        NUMBERS,
        "arithmetic",
        (
            "Use numbers, but no number twice",
            "No number may come more than once, and there must be some",
            "All numbers in the text must be different",
            "Give some numbers and repeat none of them",
            "Every number you write should be a new one",
        ),
        "{}",
        lambda part: part,
        same,
        number,
    )
    yield Distinct(
        "hashtags",
        UNITS["hashtags"],
        "addresses",
        (
            "Use hashtags, but no hashtag twice",
            "No hashtag may come more than once, and there must be some",
            "All hashtags must be different",
            "Add some hashtags and repeat none of them",
            "Every hashtag you write should be a new one",
        ),
        "{}.lower()",
        lambda part: part.casefold(),
        same,
        lambda part, pen: UNITS["hashtags"].new(pen),
    )


def composed_kinds() -> Iterator[Kind]:
    """Yield the kinds with a property or a relation of units."""
    yield from _every()
    yield from _some()
    yield from _placed()
    yield from _ordered()
    yield from _distinct()
