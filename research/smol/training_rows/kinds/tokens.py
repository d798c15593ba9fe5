"""Units that are a token or a line of a certain form: links, dates, table rows, words in another alphabet."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

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
from research.smol.training_rows.writing import Pen, language_sentences


def _token(name: str, pattern: str, new: Callable[[Pen], str], *carriers: str, flags: int = 0) -> Unit:
    shown = f"re.findall(r{_raw(pattern)}, t{', re.S' if flags & re.DOTALL else ''})"
    found = re.compile(pattern, flags)
    about = carriers or (
        "See {} for the details.",
        "The note mentions {}.",
        "Somebody wrote {} on the board.",
    )
    return Unit(name, shown, found, new, carriers=about)


def _line(name: str, pattern: str, new: Callable[[Pen], str]) -> Unit:
    shown = f"re.findall(r{_raw(pattern)}, t, re.M)"
    return Unit(name, shown, re.compile(pattern, re.MULTILINE), new, "line")


def _raw(pattern: str) -> str:
    return f"'{pattern}'" if '"' in pattern else f'"{pattern}"'


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("123456789") for _ in range(count))


def _script(*languages: str) -> Callable[[Pen], str]:
    def new(pen: Pen) -> str:
        text = " ".join(language_sentences()[pen.rng.choice(languages)])
        return pen.rng.choice([word.strip(".,?!:;،؟。、？") for word in text.split() if len(word) > 2])

    return new


def _character(*languages: str, pattern: str) -> Callable[[Pen], str]:
    def new(pen: Pen) -> str:
        text = "".join(language_sentences()[pen.rng.choice(languages)])
        return pen.rng.choice(re.findall(pattern, text))

    return new


_NAMED = ("Write to {} with questions.", "The contact is {}.", "Ask {} first.")
_SUM = ("It costs {} at most.", "The old one was {}.", "We paid {} for it.", "Plan {} for the start.")
_DAY = ("It began on {}.", "The next check is due on {}.", "Keep {} free.", "Nothing changed after {}.")
_ASIDE = ("Most of it {} is easy to learn.", "The second part {} takes longer.", "A friend {} told me so.")
_WORDS = (
    "My aunt says {} every day.",
    "Think of {} for a moment.",
    "There was {} on the sign.",
    "The label says {}.",
)
NUMBERS = _token(
    "numbers",
    r"\d+",
    lambda pen: str(
        pen.rng.choice([pen.rng.randint(2, 20), pen.rng.randint(2, 100), pen.rng.randint(100, 900)])
    ),
    *("There were {} of them.", "It takes {} minutes.", "Page {} explains it.", "About {} people came."),
)
TOKENS: tuple[Unit, ...] = (
    NUMBERS,
    _token(
        "emails",
        r"[\w.]+@\w+\.\w+",
        lambda pen: "{}@{}.{}".format(
            pen.rng.choice(["anna", "office", "help.desk", "sam", "info", "j.weber"]),
            pen.word(),
            pen.rng.choice(["org", "com", "net", "eu"]),
        ),
        *_NAMED,
    ),
    _token(
        "links",
        r"https?://\S+",
        lambda pen: f"https://{pen.word()}.{pen.rng.choice(['org', 'com', 'net'])}/{pen.word()}",
        "See {} for the details.",
        "The page {} has more.",
        "We found it at {} last week.",
    ),
    _token(
        "hashtags",
        r"#\w+",
        lambda pen: f"#{pen.word()}",
        "We call it {} here.",
        "{} is everywhere.",
        "Post it with {} please.",
    ),
    _token(
        "mentions",
        r"@\w+",
        lambda pen: f"@{pen.word()}",
        "Thanks to {} for the hint.",
        "As {} said, it works.",
        "Ask {} about it.",
    ),
    _token(
        "emoji",
        "[\U0001f300-\U0001faff]",
        lambda pen: pen.rng.choice("😀🎉🚀🌍🍎🐶🌻🔥🎁🏠🧭🤖🥦🫖"),
        "That is good news {} for all.",
        "We like it {} a lot.",
        "Here we go {} again.",
    ),
    _token(
        "percents",
        r"\d+%",
        lambda pen: f"{pen.rng.randint(2, 99)}%",
        "About {} agree.",
        "It fell by {} last year.",
        "Only {} of them stay.",
    ),
    _token(
        "prices",
        r"[$€£]\d+",
        lambda pen: f"{pen.rng.choice('$$€£')}{pen.rng.randint(2, 900)}",
        *_SUM,
    ),
    _token(
        "dates",
        r"\d{4}-\d{2}-\d{2}",
        lambda pen: f"{pen.rng.randint(1990, 2029)}-{pen.rng.randint(1, 12):02}-{pen.rng.randint(1, 28):02}",
        *_DAY,
    ),
    _token(
        "times",
        r"\d{1,2}:\d{2}",
        lambda pen: f"{pen.rng.randint(6, 23)}:{pen.rng.choice(['00', '15', '30', '45', '05'])}",
        "It starts at {} sharp.",
        "The bus leaves at {} every day.",
        "We meet at {} by the gate.",
    ),
    _token(
        "phones",
        r"\d{3}-\d{3}-\d{4}",
        lambda pen: f"{_digits(pen.rng, 3)}-{_digits(pen.rng, 3)}-{_digits(pen.rng, 4)}",
        "Call {} in the morning.",
        "Our line is {} on weekdays.",
        "Text {} if you are late.",
    ),
    _token(
        "versions",
        r"\d+\.\d+\.\d+",
        lambda pen: f"{pen.rng.randint(0, 9)}.{pen.rng.randint(0, 20)}.{pen.rng.randint(0, 9)}",
        "Version {} fixed it.",
        "We still use {} at home.",
        "Update to {} soon.",
    ),
    _token(
        "years",
        r"\b(?:19|20)\d\d\b",
        lambda pen: str(pen.rng.randint(1905, 2029)),
        "It opened in {} for the first time.",
        "Since {} nothing changed.",
        "The law of {} helped.",
    ),
    _token(
        "quotes",
        '"[^"]+"',
        lambda pen: f'"{pen.phrase("title")}"',
        "Some call it {} now.",
        "The sign said {} in red.",
        "He shouted {} and left.",
    ),
    _token(
        "asides",
        r"\([^()]+\)",
        lambda pen: f"({pen.word()} {pen.word()})",
        *_ASIDE,
    ),
    _token(
        "brackets",
        r"\[[^\[\]]+\]",
        lambda pen: f"[{pen.word()} {pen.word()}]",
        *_ASIDE,
    ),
    _token(
        "bolds",
        r"\*\*[^*]+\*\*",
        lambda pen: f"**{pen.word()}**",
        *_WORDS,
    ),
    _token(
        "codes",
        "`[^`]+`",
        lambda pen: f"`{pen.word()}`",
        *_WORDS,
    ),
    _token(
        "footnotes",
        r"\[\d+\]",
        lambda pen: f"[{pen.rng.randint(1, 30)}]",
        "This was shown before {} in a study.",
        "Most agree {} today.",
        "The numbers are old {} though.",
    ),
    _token(
        "fractions",
        r"\d+/\d+",
        lambda pen: f"{pen.rng.randint(1, 7)}/{pen.rng.randint(2, 9)}",
        "About {} of it is water.",
        "Use {} of a cup.",
        "Only {} were left.",
    ),
    _token(
        "decimals",
        r"\d+\.\d+",
        lambda pen: f"{pen.rng.randint(0, 40)}.{pen.rng.randint(1, 9)}",
        "It rose by {} points.",
        "The mean was {} this time.",
        "Add {} to the result.",
    ),
    _token(
        "ordinals",
        r"\d+(?:st|nd|rd|th)",
        lambda pen: pen.rng.choice(["1st", "2nd", "3rd", "4th", "5th", "7th", "9th", "12th", "20th"]),
        "It was the {} attempt.",
        "On the {} day it rained.",
        "She came {} in the race.",
    ),
    _token(
        "ranges",
        r"\d+-\d+",
        lambda pen: f"{(low := pen.rng.randint(1, 40))}-{low + pen.rng.randint(2, 30)}",
        "It takes {} minutes.",
        "Pages {} explain it.",
        "Children of {} years like it.",
    ),
    _token(
        "weights",
        r"\d+ kg",
        lambda pen: f"{pen.rng.randint(2, 90)} kg",
        "It weighs {} in all.",
        "We carried {} up the hill.",
        "Add {} of sand.",
    ),
    _token(
        "distances",
        r"\d+ km",
        lambda pen: f"{pen.rng.randint(2, 900)} km",
        "It is {} from here.",
        "We walked {} that day.",
        "After {} there is a bridge.",
    ),
    _token(
        "degrees",
        r"-?\d+ ?°C",
        lambda pen: f"{pen.rng.randint(-9, 38)} °C",
        "It was {} at noon.",
        "Keep it at {} over night.",
        "Below {} it stops.",
    ),
    _token(
        "colours",
        r"#[0-9a-f]{6}",
        lambda pen: "#" + "".join(pen.rng.choice("0123456789abcdef") for _ in range(6)),
        "The border is {} now.",
        "Use {} for the links.",
        "We painted it {} last year.",
    ),
    _token(
        "files",
        r"\w+\.(?:txt|pdf|csv|py)",
        lambda pen: f"{pen.word()}.{pen.rng.choice(['txt', 'pdf', 'csv', 'py'])}",
        "Open {} first.",
        "The table is in {} as well.",
        "Save it as {} please.",
    ),
    _token(
        "acronyms",
        r"\b[A-Z]{2,5}\b",
        lambda pen: "".join(pen.rng.choice("ABCDEFGHKLMNPRST") for _ in range(pen.rng.randint(2, 4))),
        "The {} agreed.",
        "Ask the {} about it.",
        "They call it {} for short.",
    ),
    _token(
        "shouted",
        r"\b[A-Z]\w*\b",
        lambda pen: pen.rng.choice(["Anna", "Lisbon", "Monday", "Europe", "Tom", "Priya", "Canada"]),
        "then {} came along.",
        "some asked {} about it.",
        "it was a present for {} and the others.",
    ),
    _token(
        "hyphenated",
        r"\w+-\w+",
        lambda pen: pen.rng.choice(
            ["well-known", "long-term", "part-time", "old-fashioned", "self-made", "low-cost", "high-speed"]
        ),
        "It is a {} idea.",
        "They want a {} answer.",
        "She calls it {} for a reason.",
    ),
    _token(
        "contractions",
        r"\w+'\w+",
        lambda pen: pen.rng.choice(["don't", "it's", "can't", "we're", "isn't", "they'll", "won't"]),
        "Some people {} a problem.",
        "I know {} so.",
        "They say {} here.",
    ),
    _token(
        "placeholders",
        r"<\w+>",
        lambda pen: f"<{pen.word()}>",
        "Write {} here.",
        "Replace {} by your own.",
        "Dear {} or whoever reads it.",
    ),
    _token(
        "blocks",
        r"```.+?```",
        lambda pen: f"```\n{pen.word()} = {pen.rng.randint(1, 99)}\n```",
        "\n\n{}\n\n",
        flags=re.DOTALL,
    ),
    _line(
        "checkboxes",
        r"^- \[[ x]\] .+",
        lambda pen: f"- [{pen.rng.choice(' x')}] {pen.sentence()}",
    ),
    _line(
        "quoted_lines",
        r"^> .+",
        lambda pen: f"> {pen.sentence()}",
    ),
    _line(
        "rows",
        r"^\|.+\|$",
        lambda pen: f"| {pen.word()} | {pen.rng.randint(1, 99)} |",
    ),
    _line(
        "dividers",
        r"^(?:---|\*\*\*)$",
        lambda pen: pen.rng.choice(["---", "***"]),
    ),
    _line(
        "speeches",
        r"^\w+: .+",
        lambda pen: f"{pen.rng.choice(['Anna', 'Tom', 'Priya', 'Sam', 'Lucy'])}: {pen.sentence()}",
    ),
    _token(
        "cyrillic",
        "[а-яА-ЯёЁ]+",
        _script("Russian"),
        *_WORDS,
    ),
    _token(
        "greek",
        "[α-ωΑ-Ωά-ώ]+",
        _script("Greek"),
        *_WORDS,
    ),
    _token(
        "arabic",
        "[\u0621-\u064a]+",
        _script("Arabic"),
        *_WORDS,
    ),
    _token(
        "hebrew",
        "[א-ת]+",
        _script("Hebrew"),
        *_WORDS,
    ),
    _token(
        "hangul",
        "[가-힣]+",
        _script("Korean"),
        *_WORDS,
    ),
    _token(
        "kana",
        "[ぁ-んァ-ン]+",
        lambda pen: pen.rng.choice(
            ["さくら", "すし", "カメラ", "ありがとう", "テレビ", "ねこ", "おはよう", "ピアノ"]
        ),
        *_WORDS,
    ),
    _token(
        "hanzi",
        "[一-鿿]",
        _character("Chinese", pattern="[一-鿿]"),
        *_WORDS,
    ),
    _token(
        "devanagari",
        "[\u0900-\u097f]+",
        lambda pen: re.sub("[^\u0900-\u097f]", "", _script("Hindi")(pen)) or "घर",
        *_WORDS,
    ),
    _token(
        "accents",
        "[à-öø-ÿ]",
        lambda pen: pen.rng.choice(["é", "ü", "ñ", "à", "ö", "ç", "è"]),
        "Write {} with care.",
        "The letter {} is rare.",
        "They pronounce {} softly.",
    ),
)
TEXTUAL = (SENTENCES, LINES, PARAGRAPHS, WORDS, ITEMS, HEADINGS, STEPS)
UNITS = {unit.name: unit for unit in (*TEXTUAL, *TOKENS)}
