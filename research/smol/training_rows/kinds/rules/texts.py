"""Kinds of rules about a whole text: positions, words, letters and sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from research.smol.training_rows.families.keywords import draw_word, literal, mention, unmention
from research.smol.training_rows.kinds.rules.base import (
    Given,
    Rule,
    compared,
    from_range,
    lines_of,
    rule,
    wanted,
)
from research.smol.training_rows.kinds.tokens import NUMBERS, UNITS
from research.smol.training_rows.kinds.units import LINES, SENTENCES, WORDS
from research.smol.training_rows.writing import Pen, insert_sentence, language_sentences

_PRICES = UNITS["prices"]


def _word(text: str, pen: Pen) -> str:
    return draw_word(text, pen, 0.3).split()[0].strip(".,'’\"")


def _two(text: str, pen: Pen) -> dict[str, Any]:
    first, second = _word(text, pen), _word(text, pen)
    while second.lower() in first.lower() or first.lower() in second.lower():
        second = pen.word()
    return {"first": first, "second": second}


def _foreign(pen: Pen, count: int) -> str:
    """Return sentences without any Latin letter."""
    language = pen.rng.choice(["Russian", "Greek", "Arabic", "Hindi", "Korean"])
    return " ".join(pen.rng.sample(language_sentences()[language], count))


def _in_text(word: str) -> str:
    """Return the program's expression of the place of a word, in any case."""
    return f"r.lower().find({literal(word)}.lower())"


def _in_program(word: str) -> str:
    """Return the program's expression that counts a word, in any case."""
    return f"r.lower().count({literal(word)}.lower())"


def _times(text: str, word: str) -> int:
    return len(re.findall(re.escape(word), text, re.IGNORECASE))


def _ends(text: str, count: int, word: str, pen: Pen) -> str:
    """Return the text with a word exactly this many times."""
    text = unmention(text, word, pen)
    for _ in range(count):
        text = mention(text, word, pen)
    return text


def _ordered(text: str, given: Given, pen: Pen, swap: bool) -> str:
    a, b = (given["second"], given["first"]) if swap else (given["first"], given["second"])
    text = unmention(unmention(text, a, pen), b, pen)
    lines = text.strip()
    return f"{pen.phrase('starts').rstrip('.')} {a}. {lines} {pen.sentence().rstrip('.!?')} {b}."


def _found(text: str, word: str) -> int:
    match = re.search(re.escape(word.lower()), text.lower())
    return match.start() if match else -1


def _same_ends(text: str, given: Given, pen: Pen) -> str:
    words = WORDS.parts(text)
    return f"{text.rstrip(' .!?')} {words[0].lower()}." if words else "So it is so."


def _other_end(text: str, given: Given, pen: Pen) -> str:
    return re.sub(r"\w+(\W*)\Z", lambda match: pen.word() + match[1], text)


def _echo(text: str, given: Given, pen: Pen) -> str:
    words = [match.span() for match in re.finditer(r"(?<=\w )\w+(?= )", text)]
    if not words:
        return f"{text} so so"
    start, end = pen.rng.choice(words)
    return f"{text[:end]} {text[start:end].lower()}{text[end:]}"


def _without_echo(text: str, given: Given, pen: Pen) -> str:
    while re.search(r"\b(\w+) \1\b", text.lower()):
        text = re.sub(r"\b(\w+) \1\b", r"\1", text, flags=re.IGNORECASE)
    return text


def _with_end(text: str, mark: str) -> str:
    return text.rstrip(" .!?;:,…") + mark


def _first_letter(text: str, letter: str, pen: Pen) -> str:
    words = [word for word in pen.vocabulary if word.startswith(letter.lower())]
    word = pen.rng.choice(words) if words else f"{letter}a"
    return f"{word.capitalize()} {text.strip()}"


def _last_letter(text: str, letter: str, pen: Pen) -> str:
    words = [word for word in pen.vocabulary if word.endswith(letter.lower())]
    word = pen.rng.choice(words) if words else f"a{letter}"
    return f"{text.rstrip(' .!?')} {word}{pen.rng.choice(['.', '', '!'])}"


def _line_for(letter: str, pen: Pen) -> str:
    for _ in range(40):
        sentence = pen.sentence()
        if sentence[0].lower() == letter:
            return sentence
    words = [word for word in pen.vocabulary if word.startswith(letter)]
    word = pen.rng.choice(words) if words else f"{letter}a"
    return f"{word.capitalize()} comes first here."


def _acrostic(text: str, given: Given, pen: Pen) -> str:
    return "\n".join(_line_for(letter, pen) for letter in given["word"].lower())


def _broken_acrostic(text: str, given: Given, pen: Pen) -> str:
    lines = _acrostic(text, given, pen).split("\n")
    how = pen.rng.random()
    if how < 0.3:
        return "\n".join([*lines, _line_for(pen.rng.choice("abcdlmprs"), pen)])
    if how < 0.6 and len(lines) > 2:
        return "\n".join(lines[:-1])
    at = pen.rng.randrange(len(lines))
    lines[at] = _line_for(
        pen.rng.choice([one for one in "abcdeghlmnoprst" if one != given["word"][at].lower()]), pen
    )
    return "\n".join(lines)


def _initials(text: str) -> str:
    return "".join(line.strip()[0] for line in text.splitlines() if line.strip()).lower()


def _multiple(text: str, given: Given, pen: Pen, keep: bool) -> str:
    for _ in range(60):
        rest = len(WORDS.spans(text)) % given["k"]
        if (rest == 0) == keep:
            return text
        text = WORDS.add(text, pen) if keep is False or rest > 0 else text
    return text


def _with_numbers(text: str, numbers: Sequence[int], pen: Pen) -> str:
    while NUMBERS.spans(text):
        text = NUMBERS.replace(text, 0, "some")
    for number in numbers:
        text = NUMBERS.add(text, pen, str(number))
    return text


def _split_sum(total: int, pen: Pen) -> list[int]:
    parts = pen.rng.randint(2, 4)
    cuts = sorted(pen.rng.sample(range(1, total), parts - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def _with_prices(text: str, total: int, pen: Pen) -> str:
    while _PRICES.spans(text):
        text = _PRICES.replace(text, 0, "a little")
    for number in _split_sum(max(4, total), pen):
        text = _PRICES.add(text, pen, f"${number}")
    return text


def _spent(text: str) -> int:
    return sum(int(price[1:]) for price in _PRICES.parts(text))


def _totalled(text: str, given: Given, pen: Pen, keep: bool) -> str:
    numbers = [pen.rng.randint(2, 60) for _ in range(pen.rng.randint(2, 4))]
    total = sum(numbers) if keep else sum(numbers) + pen.rng.choice([-1, 1, 2, 10])
    body = _with_numbers(text, [], pen)
    listed = "\n".join(f"- {pen.word()}: {number}" for number in numbers)
    return f"{body}\n\n{listed}\nTotal: {total}"


def _is_totalled(text: str) -> bool:
    numbers = [int(one) for one in NUMBERS.parts(text)]
    return len(numbers) > 2 and sum(numbers) == 2 * numbers[-1]


def _mean_edit(text: str, given: Given, pen: Pen, keep: bool) -> str:
    for _ in range(60):
        words, count = len(WORDS.spans(text)), len(SENTENCES.spans(text))
        if (words <= given["n"] * count) == keep:
            return text
        places = [match.end() for match in re.finditer(r"\w\w\w(?= \w)", text)]
        if not places:
            return text
        at = pen.rng.choice(places)
        if keep:
            text = f"{text[:at]}. {text[at + 1 : at + 2].upper()}{text[at + 2 :]}"
        else:
            text = re.sub(r"[.!?] (\w)", lambda match: f", {match[1].lower()}", text, count=1)
    return text


TEXTS: tuple[Rule, ...] = (
    rule(
        "ascii",
        "alphabets",
        lambda g: "r.isascii()",
        lambda text, g: max(map(ord, text), default=0) < 128,
        lambda text, g, pen: text.encode("ascii", "ignore").decode(),
        lambda text, g, pen: insert_sentence(
            text,
            pen.rng.choice(
                [
                    "We met in a café.",
                    "It costs 20 € there.",
                    "The naïve plan failed.",
                    "They said “no” twice.",
                    "It was 20° outside.",
                ]
            ),
            pen.rng,
        ),
        order=82,
    ),
    rule(
        "no_latin",
        "alphabets",
        lambda g: 'not any("a" <= c <= "z" for c in r.lower())',
        lambda text, g: re.search("[a-z]", text.lower()) is None,
        lambda text, g, pen: _foreign(pen, 4),
        lambda text, g, pen: (
            f"{_foreign(pen, 3)} {pen.rng.choice(['OK', 'Internet', 'e', 'Taxi'])}"
            if pen.chance(0.7)
            else text
        ),
        order=20,
    ),
    rule(
        "parentheses",
        "punctuation",
        lambda g: 'r.count("(") == r.count(")") > 0',
        lambda text, g: 0 < len(re.findall(r"\(", text)) == len(re.findall(r"\)", text)),
        lambda text, g, pen: UNITS["asides"].add(re.sub(r"[()]", "", text), pen),
        lambda text, g, pen: re.sub(r"\)", "", UNITS["asides"].add(re.sub(r"[()]", "", text), pen), count=1),
    ),
    rule(
        "same_ends",
        "position",
        lambda g: "words(r.lower())[:1] == words(r.lower())[-1:]",
        lambda text, g: (found := WORDS.parts(text.lower())) != [] and found[0] == found[-1],
        _same_ends,
        _other_end,
        uses=(WORDS,),
        order=80,
    ),
    rule(
        "before",
        "order",
        lambda g: f"-1 < {_in_text(g['first'])} < {_in_text(g['second'])}",
        lambda text, g: -1 < _found(text, g["first"]) < _found(text, g["second"]),
        lambda text, g, pen: _ordered(text, g, pen, False),
        lambda text, g, pen: _ordered(text, g, pen, True),
        _two,
    ),
    rule(
        "once",
        "words",
        lambda g: f"r.lower().count({literal(g['word'])}.lower()) == 1",
        lambda text, g: _times(text, g["word"]) == 1,
        lambda text, g, pen: _ends(text, 1, g["word"], pen),
        lambda text, g, pen: _ends(text, pen.rng.choice([0, 2, 2, 3]), g["word"], pen),
        lambda text, pen: {"word": _word(text, pen)},
    ),
    rule(
        "more_often",
        "words",
        lambda g: f"{_in_program(g['first'])} > {_in_program(g['second'])}",
        lambda text, g: _times(text, g["first"]) > _times(text, g["second"]),
        lambda text, g, pen: _ends(_ends(text, pen.rng.randint(0, 1), g["second"], pen), 2, g["first"], pen),
        lambda text, g, pen: _ends(_ends(text, 2, g["second"], pen), pen.rng.randint(0, 2), g["first"], pen),
        _two,
    ),
    rule(
        "no_echo",
        "words",
        lambda g: r'not re.search(r"\b(\w+) \1\b", r.lower())',
        lambda text, g: (
            not any(
                a == b
                for a, b in zip(
                    *(re.findall(r"\w+|[^\w ]|  +|\n", text.lower())[at:] for at in (0, 1)), strict=False
                )
                if a.isalnum()
            )
        ),
        _without_echo,
        _echo,
    ),
    rule(
        "no_double_space",
        "punctuation",
        lambda g: '"  " not in r',
        lambda text, g: re.search(r" {2,}", text) is None,
        lambda text, g, pen: re.sub(" {2,}", " ", text),
        lambda text, g, pen: (
            text.replace(". ", ".  ", pen.rng.randint(1, 3)) if ". " in text else text.replace(" ", "  ", 1)
        ),
        order=88,
    ),
    rule(
        "no_end_mark",
        "position",
        lambda g: f"not r.strip().endswith({literal(g['mark'])})",
        lambda text, g: text.rstrip()[-1:] != g["mark"],
        lambda text, g, pen: _with_end(
            text, pen.rng.choice(["", "!", "..."[:0]]) if g["mark"] != "!" else "."
        ),
        lambda text, g, pen: _with_end(text, g["mark"]),
        lambda text, pen: {"mark": pen.rng.choice([".", ".", "!", "?"])},
        order=86,
    ),
    rule(
        "first_letter",
        "letters",
        lambda g: f"r.strip()[:1].lower() == {literal(g['letter'])}.lower()",
        lambda text, g: text.strip().lower().startswith(g["letter"].lower()),
        lambda text, g, pen: _first_letter(text, g["letter"], pen),
        lambda text, g, pen: _first_letter(
            text, pen.rng.choice([one for one in "abcdlmprst" if one != g["letter"].lower()]), pen
        ),
        lambda text, pen: {"letter": pen.rng.choice("ABCDEGHLMNOPRSTW")},
        order=84,
    ),
    rule(
        "last_letter",
        "letters",
        lambda g: f're.sub(r"\\W", "", r)[-1:].lower() == {literal(g["letter"])}.lower()',
        lambda text, g: (
            ([one for one in text if one.isalnum() or one == "_"] or [""])[-1].lower() == g["letter"].lower()
        ),
        lambda text, g, pen: _last_letter(text, g["letter"], pen),
        lambda text, g, pen: _last_letter(
            text, pen.rng.choice([one for one in "deghlnrsty" if one != g["letter"].lower()]), pen
        ),
        lambda text, pen: {"letter": pen.rng.choice("DEGHLNRSTY")},
        order=84,
    ),
    rule(
        "acrostic",
        "letters",
        lambda g: f'"".join(l.strip()[0] for l in lines(r)).lower() == {literal(g["word"])}.lower()',
        lambda text, g: _initials(text) == g["word"].lower(),
        _acrostic,
        _broken_acrostic,
        lambda text, pen: {
            "word": pen.rng.choice(
                [word for word in pen.vocabulary if 3 <= len(word) <= 5] or ["sun"]
            ).upper()
        },
        (LINES,),
        30,
    ),
    rule(
        "multiple",
        "words",
        lambda g: f"len(words(r)) % {g['k']} == 0",
        lambda text, g: len(WORDS.spans(text)) % g["k"] == 0,
        lambda text, g, pen: _multiple(text, g, pen, True),
        lambda text, g, pen: _multiple(text, g, pen, False),
        lambda text, pen: {"k": pen.rng.choice([2, 3, 5, 10])},
        (WORDS,),
        78,
    ),
    rule(
        "mean_length",
        "lengths",
        lambda g: f"len(words(r)) <= {g['n']} * len(sentences(r))",
        lambda text, g: len(WORDS.spans(text)) <= g["n"] * len(SENTENCES.spans(text)),
        lambda text, g, pen: _mean_edit(text, g, pen, True),
        lambda text, g, pen: _mean_edit(text, g, pen, False),
        from_range(7, 13),
        (WORDS, SENTENCES),
        42,
    ),
    rule(
        "sum",
        "arithmetic",
        lambda g: f"sum(int(n) for n in numbers(r)) == {g['n']}",
        lambda text, g: sum(map(int, NUMBERS.parts(text))) == g["n"],
        lambda text, g, pen: _with_numbers(text, _split_sum(g["n"], pen), pen),
        lambda text, g, pen: _with_numbers(
            text, _split_sum(g["n"] + pen.rng.choice([-2, -1, 1, 3, 10]), pen), pen
        ),
        lambda text, pen: {"n": pen.rng.choice([20, 30, 42, 50, 60, 75, 90, 100, 120])},
        (NUMBERS,),
        48,
    ),
    rule(
        "budget",
        "arithmetic",
        lambda g: f"len(prices(r)) > 0 and sum(int(p[1:]) for p in prices(r)) {g['sign']} {g['n']}",
        lambda text, g: bool(_PRICES.spans(text)) and compared(_spent(text), g),
        lambda text, g, pen: _with_prices(text, wanted(g, pen, True), pen),
        lambda text, g, pen: _with_prices(text, wanted(g, pen, False), pen),
        lambda text, pen: {"n": pen.rng.choice([20, 50, 80, 100, 150, 200, 300])},
        (_PRICES,),
        48,
    ),
    rule(
        "total",
        "arithmetic",
        lambda g: "len(numbers(r)) > 2 and sum(map(int, numbers(r)[:-1])) == int(numbers(r)[-1])",
        lambda text, g: _is_totalled(text),
        lambda text, g, pen: _totalled(text, g, pen, True),
        lambda text, g, pen: _totalled(text, g, pen, False),
        uses=(NUMBERS,),
        order=70,
    ),
    rule(
        "first_number",
        "arithmetic",
        lambda g: f'numbers(r)[:1] == ["{g["n"]}"]',
        lambda text, g: next(iter(NUMBERS.parts(text)), "") == str(g["n"]),
        lambda text, g, pen: (
            f"{g['n']} {pen.rng.choice(['people asked', 'days went by', 'is a good number'])}. {text}"
        ),
        lambda text, g, pen: (
            f"{pen.rng.randint(2, 90)} {pen.rng.choice(['asked', 'days went by'])}, not {g['n']}. {text}"
        ),
        from_range(3, 40),
        (NUMBERS,),
        77,
    ),
    rule(
        "refrain",
        "position",
        lambda g: "len(lines(r)) > 1 and lines(r)[0] == lines(r)[-1]",
        lambda text, g: len(lines_of(text)) > 1 and len({lines_of(text)[0], lines_of(text)[-1]}) == 1,
        lambda text, g, pen: f"{text}\n\n{lines_of(text)[0]}" if lines_of(text) else text,
        lambda text, g, pen: (
            pen.rng.choice(
                [
                    f"{text}\n\n{lines_of(text)[0]} {pen.word()}",
                    f"{text}\n\n{pen.sentence()}",
                ]
            )
            if lines_of(text)
            else text
        ),
        uses=(LINES,),
        order=80,
    ),
)
