"""Kinds of rules about a whole text: positions, words, letters, sums, templates and code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from research.smol.training_rows.families.keywords import draw_word, literal, mention, unmention
from research.smol.training_rows.kinds.rules import Parts, Rule, compared, wanted
from research.smol.training_rows.kinds.units import HEADINGS, LINES, NUMBERS, SENTENCES, UNITS, WORDS
from research.smol.training_rows.writing import Pen, insert_sentence, language_sentences

Given = Mapping[str, Any]
_NAMES = ("Anna", "Tom", "Priya", "Sam", "Lucy", "Jonas", "Maria", "Ken")
_BLOCKS, _PRICES = UNITS["blocks"], UNITS["prices"]


def _rule(
    name: str,
    group: str,
    code: Callable[[Given], str],
    holds: Callable[[str, Given], bool],
    follow: Callable[[str, Given, Pen], str],
    violate: Callable[[str, Given, Pen], str],
    draw: Callable[[str, Pen], dict[str, Any]] = lambda text, pen: {},
    uses: Sequence[Any] = (),
    order: int = 65,
) -> Rule:
    return Rule(name, group, Parts(code, holds, follow, violate, draw, tuple(unit.definition for unit in uses), order))


def _word(text: str, pen: Pen) -> str:
    return draw_word(text, pen, 0.3).split()[0].strip(".,'’\"")


def _two(text: str, pen: Pen) -> dict[str, Any]:
    first, second = _word(text, pen), _word(text, pen)
    while second.lower() in first.lower() or first.lower() in second.lower():
        second = pen.rng.choice(pen.vocabulary)
    return {"first": first, "second": second}


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
    return re.sub(r"\w+(\W*)\Z", lambda match: pen.rng.choice(pen.vocabulary) + match[1], text)


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


def _letters(text: str) -> str:
    return "".join(one for one in text if one.isalpha()).lower()


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
    lines[at] = _line_for(pen.rng.choice([one for one in "abcdeghlmnoprst" if one != given["word"][at].lower()]), pen)
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
    listed = "\n".join(f"- {pen.rng.choice(pen.vocabulary)}: {number}" for number in numbers)
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


def _wrapped(text: str, given: Given) -> str:
    return f"{given['open']}{text.strip()}{given['close']}"


def _unwrapped(text: str, given: Given, pen: Pen) -> str:
    body = text.strip().removeprefix(given["open"]).removesuffix(given["close"])
    wrong = [f"{given['open']}{body}", f"{body}{given['close']}", f"{given['close']}{body}{given['open']}", f"Here: {given['open']}{body}{given['close']}"]
    return pen.rng.choice(wrong)


def _sectioned(text: str, given: Given, count: int, pen: Pen) -> str:
    parts = text.replace(given["mark"], " ").split(". ")
    while len(parts) < count:
        parts.append(pen.sentence().rstrip("."))
    size = max(1, len(parts) // max(1, count))
    groups = [". ".join(parts[at * size : (at + 1) * size] if at < count - 1 else parts[at * size :]) for at in range(count)]
    return f"\n{given['mark']}\n".join(groups)


_LABELS = ("Name", "Date", "Topic", "Place", "Owner", "Status", "Goal", "Risk", "Budget", "Contact", "Summary", "Next step", "Deadline")


def _labelled(labels: Sequence[str], pen: Pen) -> str:
    return "\n".join(f"{label}: {pen.rng.choice([pen.rng.choice(pen.vocabulary), pen.phrase('title'), pen.topic])}" for label in labels)


def _mislabelled(text: str, given: Given, pen: Pen) -> str:
    labels = list(given["labels"])
    at = pen.rng.randrange(1, len(labels))
    how = pen.rng.random()
    if how < 0.4:
        labels[at], labels[at - 1] = labels[at - 1], labels[at]
    elif how < 0.7:
        del labels[at]
    else:
        labels[at] = pen.rng.choice([one for one in _LABELS if one not in labels])
    return _labelled(labels, pen)


def _label_lines(text: str) -> list[str]:
    return [line.partition(":")[0] for line in text.splitlines() if line.strip()]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _with_first_line(text: str, line: str, known: str) -> str:
    body = text.strip()
    head, _, tail = body.partition("\n")
    if head.startswith(known):
        body = tail.strip()
    return f"{line}\n\n{body}" if line else body


def _greeting(given: Given, pen: Pen) -> str:
    name, word = given["name"], given["word"]
    other = pen.rng.choice([one for one in _NAMES if one != name])
    return pen.rng.choice([f"{word} {other},", f"{'Hello' if word != 'Hello' else 'Hi'} {name},", f"{word} {name}!", f"{word} {name}", ""])


def _signed(text: str, given: Given, pen: Pen, keep: bool) -> str:
    lines = _lines(text)
    body = "\n\n".join(lines[:-2] if lines[-2:-1] and lines[-2].endswith(",") and len(lines) > 3 else lines)
    closing = [f"{given['close']},", given["name"]]
    if not keep:
        other = pen.rng.choice([one for one in _NAMES if one != given["name"]])
        closing = pen.rng.choice([[closing[0], other], ["Cheers,", given["name"]], [given["name"]], [closing[0]], [*closing, "PS: " + pen.sentence()]])
    return body + "\n\n" + "\n".join(closing)


def _questions(pen: Pen, keep: bool) -> str:
    count = pen.rng.randint(2, 4)
    lines = [line for _ in range(count) for line in (f"Q: What about {pen.rng.choice(pen.vocabulary)}?", f"A: {pen.sentence()}")]
    if not keep:
        at = pen.rng.randrange(len(lines))
        how = pen.rng.random()
        if how < 0.4:
            del lines[at]
        elif how < 0.7:
            lines[at] = lines[at][3:]
        else:
            lines[at] = ("A" if lines[at][0] == "Q" else "Q") + lines[at][1:]
    return "\n".join(lines)


def _alternates(text: str) -> bool:
    lines = _lines(text)
    return bool(lines) and all(line[:3] == ("A: " if number % 2 else "Q: ") for number, line in enumerate(lines))


def _with_headings(text: str, titles: Sequence[str], pen: Pen) -> str:
    return "\n\n".join(f"## {title}\n\n{pen.sentence()} {pen.sentence()}" for title in titles)


def _wrong_titles(given: Given, pen: Pen) -> list[str]:
    titles = list(given["labels"])
    at = pen.rng.randrange(1, len(titles))
    if pen.chance(0.5):
        titles[at], titles[at - 1] = titles[at - 1], titles[at]
    elif pen.chance(0.5):
        titles.append(pen.rng.choice([one for one in _LABELS if one not in titles]))
    else:
        del titles[at]
    return titles


def _enumerated(text: str, pen: Pen, keep: bool) -> str:
    lines = [re.sub(r"^\s*(?:[-*•#>]+|\d+[.)]) ?", "", line) for line in _lines(text)][:8] or [pen.sentence()]
    while len(lines) < 3:
        lines.append(pen.sentence())
    numbers = list(range(1, len(lines) + 1))
    if not keep:
        at = pen.rng.randrange(1, len(lines))
        numbers[at] = numbers[at] + 1 if pen.chance(0.5) else numbers[at - 1]
        if pen.chance(0.3):
            return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return "\n".join(f"{number}) {line}" for number, line in zip(numbers, lines, strict=True))


def _is_enumerated(text: str) -> bool:
    lines = _lines(text)
    return bool(lines) and all(line.startswith(f"{number}) ") for number, line in enumerate(lines, 1))


def _dated(pen: Pen) -> str:
    return UNITS["dates"].new(pen)


_CODE = {
    "python": "def {name}({arg}):\n    {line}\n    return {arg}",
    "javascript": "function {name}({arg}) {\n  {line}\n  return {arg};\n}",
    "java": "static int {name}(int {arg}) {\n  {line}\n  return {arg};\n}",
    "go": "func {name}({arg} int) int {\n  {line}\n  return {arg}\n}",
    "bash": "{name}() {\n  {line}\n  echo ${arg}\n}",
    "sql": "SELECT {arg}\nFROM {name}\nWHERE {arg} > 1;",
}


def _block(language: str, name: str, lines: int, pen: Pen, fence: str = "") -> str:
    arg = pen.rng.choice(["x", "n", "value", "count", "total"])
    body = _CODE[language].replace("{name}", name).replace("{arg}", arg).split("\n")
    fillers = [f"{arg} = {arg} + {pen.rng.randint(1, 9)}" for _ in range(20)]
    body = [one.replace("{line}", fillers.pop()) for one in body]
    while len(body) < lines:
        body.insert(1, f"    {fillers.pop()}" if language == "python" else f"  {fillers.pop()}")
    return f"```{fence or language}\n" + "\n".join(body[: max(1, lines)] if lines else body) + "\n```"


def _without_blocks(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("```", "").strip()


def _with_block(text: str, block: str, pen: Pen) -> str:
    return f"{_without_blocks(text)}\n\n{block}" if pen.chance(0.7) else f"{block}\n\n{_without_blocks(text)}"


def _function(pen: Pen) -> str:
    return f"{pen.rng.choice(['get', 'count', 'find', 'read', 'make', 'area', 'sum'])}_{pen.rng.choice(pen.vocabulary)}"


def _code_lines(text: str) -> list[int]:
    return [len(block.splitlines()) - 2 for block in _BLOCKS.parts(text)]


_N = lambda low, high: (lambda text, pen: {"n": pen.rng.randint(low, high)})  # noqa: E731
TEXTS: tuple[Rule, ...] = (
    _rule("ascii", "alphabets", lambda g: "r.isascii()", lambda text, g: max(map(ord, text), default=0) < 128,
          lambda text, g, pen: text.encode("ascii", "ignore").decode(), lambda text, g, pen: insert_sentence(text, pen.rng.choice(["We met in a café.", "It costs 20 € there.", "The naïve plan failed.", "They said “no” twice.", "It was 20° outside."]), pen.rng), order=82),
    _rule("no_latin", "alphabets", lambda g: 'not any("a" <= c <= "z" for c in r.lower())', lambda text, g: re.search("[a-z]", text.lower()) is None,
          lambda text, g, pen: " ".join(pen.rng.sample(language_sentences()[pen.rng.choice(["Russian", "Greek", "Arabic", "Hindi", "Korean"])], 4)),
          lambda text, g, pen: f"{' '.join(pen.rng.sample(language_sentences()[pen.rng.choice(['Russian', 'Greek', 'Korean'])], 3))} {pen.rng.choice(['OK', 'Internet', 'e', 'Taxi'])}" if pen.chance(0.7) else text, order=20),
    _rule("parentheses", "punctuation", lambda g: 'r.count("(") == r.count(")") > 0', lambda text, g: 0 < len(re.findall(r"\(", text)) == len(re.findall(r"\)", text)),
          lambda text, g, pen: UNITS["asides"].add(re.sub(r"[()]", "", text), pen), lambda text, g, pen: re.sub(r"\)", "", UNITS["asides"].add(re.sub(r"[()]", "", text), pen), count=1)),
    _rule("same_ends", "position", lambda g: "words(r.lower())[:1] == words(r.lower())[-1:]", lambda text, g: (found := WORDS.parts(text.lower())) != [] and found[0] == found[-1],
          _same_ends, _other_end, uses=(WORDS,), order=80),
    _rule("before", "order", lambda g: f"-1 < r.lower().find({literal(g['first'])}.lower()) < r.lower().find({literal(g['second'])}.lower())",
          lambda text, g: -1 < _found(text, g["first"]) < _found(text, g["second"]), lambda text, g, pen: _ordered(text, g, pen, False), lambda text, g, pen: _ordered(text, g, pen, True), _two),
    _rule("once", "words", lambda g: f"r.lower().count({literal(g['word'])}.lower()) == 1", lambda text, g: _times(text, g["word"]) == 1,
          lambda text, g, pen: _ends(text, 1, g["word"], pen), lambda text, g, pen: _ends(text, pen.rng.choice([0, 2, 2, 3]), g["word"], pen), lambda text, pen: {"word": _word(text, pen)}),
    _rule("more_often", "words", lambda g: f"r.lower().count({literal(g['first'])}.lower()) > r.lower().count({literal(g['second'])}.lower())",
          lambda text, g: _times(text, g["first"]) > _times(text, g["second"]), lambda text, g, pen: _ends(_ends(text, pen.rng.randint(0, 1), g["second"], pen), 2, g["first"], pen),
          lambda text, g, pen: _ends(_ends(text, 2, g["second"], pen), pen.rng.randint(0, 2), g["first"], pen), _two),
    _rule("no_echo", "words", lambda g: r'not re.search(r"\b(\w+) \1\b", r.lower())', lambda text, g: not any(a == b for a, b in zip(*(re.findall(r"\w+|[^\w ]|  +|\n", text.lower())[at:] for at in (0, 1)), strict=False) if a.isalnum()),
          _without_echo, _echo),
    _rule("no_double_space", "punctuation", lambda g: '"  " not in r', lambda text, g: re.search(r" {2,}", text) is None,
          lambda text, g, pen: re.sub(" {2,}", " ", text), lambda text, g, pen: text.replace(". ", ".  ", pen.rng.randint(1, 3)) if ". " in text else text.replace(" ", "  ", 1), order=88),
    _rule("no_end_mark", "position", lambda g: f"not r.strip().endswith({literal(g['mark'])})", lambda text, g: text.rstrip()[-1:] != g["mark"],
          lambda text, g, pen: _with_end(text, pen.rng.choice(["", "!", "..."[:0]]) if g["mark"] != "!" else "."), lambda text, g, pen: _with_end(text, g["mark"]),
          lambda text, pen: {"mark": pen.rng.choice([".", ".", "!", "?"])}, order=86),
    _rule("first_letter", "letters", lambda g: f"r.strip()[:1].lower() == {literal(g['letter'])}.lower()", lambda text, g: text.strip().lower().startswith(g["letter"].lower()),
          lambda text, g, pen: _first_letter(text, g["letter"], pen), lambda text, g, pen: _first_letter(text, pen.rng.choice([one for one in "abcdlmprst" if one != g["letter"].lower()]), pen),
          lambda text, pen: {"letter": pen.rng.choice("ABCDEGHLMNOPRSTW")}, order=84),
    _rule("last_letter", "letters", lambda g: f"re.sub(r\"\\W\", \"\", r)[-1:].lower() == {literal(g['letter'])}.lower()", lambda text, g: ([one for one in text if one.isalnum() or one == "_"] or [""])[-1].lower() == g["letter"].lower(),
          lambda text, g, pen: _last_letter(text, g["letter"], pen), lambda text, g, pen: _last_letter(text, pen.rng.choice([one for one in "deghlnrsty" if one != g["letter"].lower()]), pen),
          lambda text, pen: {"letter": pen.rng.choice("DEGHLNRSTY")}, order=84),
    _rule("acrostic", "letters", lambda g: f"\"\".join(l.strip()[0] for l in lines(r)).lower() == {literal(g['word'])}.lower()", lambda text, g: _initials(text) == g["word"].lower(),
          _acrostic, _broken_acrostic, lambda text, pen: {"word": pen.rng.choice([word for word in pen.vocabulary if 3 <= len(word) <= 5] or ["sun"]).upper()}, (LINES,), 30),
    _rule("multiple", "words", lambda g: f"len(words(r)) % {g['k']} == 0", lambda text, g: len(WORDS.spans(text)) % g["k"] == 0, lambda text, g, pen: _multiple(text, g, pen, True),
          lambda text, g, pen: _multiple(text, g, pen, False), lambda text, pen: {"k": pen.rng.choice([2, 3, 5, 10])}, (WORDS,), 78),
    _rule("mean_length", "lengths", lambda g: f"len(words(r)) <= {g['n']} * len(sentences(r))", lambda text, g: len(WORDS.spans(text)) <= g["n"] * len(SENTENCES.spans(text)),
          lambda text, g, pen: _mean_edit(text, g, pen, True), lambda text, g, pen: _mean_edit(text, g, pen, False), _N(7, 13), (WORDS, SENTENCES), 42),
    _rule("sum", "arithmetic", lambda g: f"sum(int(n) for n in numbers(r)) == {g['n']}", lambda text, g: sum(map(int, NUMBERS.parts(text))) == g["n"],
          lambda text, g, pen: _with_numbers(text, _split_sum(g["n"], pen), pen), lambda text, g, pen: _with_numbers(text, _split_sum(g["n"] + pen.rng.choice([-2, -1, 1, 3, 10]), pen), pen), lambda text, pen: {"n": pen.rng.choice([20, 30, 42, 50, 60, 75, 90, 100, 120])}, (NUMBERS,), 48),
    _rule("budget", "arithmetic", lambda g: f"len(prices(r)) > 0 and sum(int(p[1:]) for p in prices(r)) {g['sign']} {g['n']}", lambda text, g: bool(_PRICES.spans(text)) and compared(_spent(text), g),
          lambda text, g, pen: _with_prices(text, wanted(g, pen, True), pen), lambda text, g, pen: _with_prices(text, wanted(g, pen, False), pen), lambda text, pen: {"n": pen.rng.choice([20, 50, 80, 100, 150, 200, 300])}, (_PRICES,), 48),
    _rule("total", "arithmetic", lambda g: "len(numbers(r)) > 2 and sum(map(int, numbers(r)[:-1])) == int(numbers(r)[-1])", lambda text, g: _is_totalled(text),
          lambda text, g, pen: _totalled(text, g, pen, True), lambda text, g, pen: _totalled(text, g, pen, False), uses=(NUMBERS,), order=70),
    _rule("first_number", "arithmetic", lambda g: f"numbers(r)[:1] == [\"{g['n']}\"]", lambda text, g: next(iter(NUMBERS.parts(text)), "") == str(g["n"]),
          lambda text, g, pen: f"{g['n']} {pen.rng.choice(['people asked.', 'days ago it began.', 'is the number to remember.'])} {text}", lambda text, g, pen: f"{pen.rng.randint(2, 90)} {pen.rng.choice(['people asked', 'days ago it began'])}, not {g['n']}. {text}", _N(3, 40), (NUMBERS,), 77),
    _rule("wrapped", "template", lambda g: f"r.strip().startswith({literal(g['open'])}) and r.strip().endswith({literal(g['close'])})", lambda text, g: text.strip()[: len(g["open"])] == g["open"] and text.strip()[-len(g["close"]) :] == g["close"],
          lambda text, g, pen: _wrapped(text, g), _unwrapped, lambda text, pen: dict(zip(("open", "close"), pen.rng.choice([("<<", ">>"), ("[", "]"), ("<answer>", "</answer>"), ("{", "}"), ("BEGIN", "END"), ("***", "***"), ("(", ")"), ("<p>", "</p>"), ("~", "~"), ("START", "STOP")]), strict=True)), order=92),
    _rule("separated", "template", lambda g: f"len(r.split({literal(g['mark'])})) {g['sign']} {g['n']}", lambda text, g: compared(1 + text.count(g["mark"]), g),
          lambda text, g, pen: _sectioned(text, g, wanted(g, pen, True), pen), lambda text, g, pen: _sectioned(text, g, wanted(g, pen, False), pen), lambda text, pen: {"mark": pen.rng.choice(["***", "+++", "|||", "===", "###", "~~~", "%%%"]), "n": pen.rng.randint(2, 5)}, order=40),
    _rule("labels", "template", lambda g: f"[l.split(\":\")[0] for l in lines(r)] == {literal(g['labels'])}", lambda text, g: _label_lines(text) == g["labels"],
          lambda text, g, pen: _labelled(g["labels"], pen), _mislabelled, lambda text, pen: {"labels": pen.rng.sample(_LABELS, pen.rng.randint(2, 4))}, (LINES,), 30),
    _rule("greeting", "template", lambda g: f"lines(r)[:1] == [{literal(g['word'] + ' ' + g['name'] + ',')}]", lambda text, g: _lines(text)[:1] == [f"{g['word']} {g['name']},"],
          lambda text, g, pen: _with_first_line(text, f"{g['word']} {g['name']},", "Dear "), lambda text, g, pen: _with_first_line(text, _greeting(g, pen), f"{g['word']} "), lambda text, pen: {"word": pen.rng.choice(["Dear", "Hello", "Hi", "Good morning"]), "name": pen.rng.choice(_NAMES)}, (LINES,), 90),
    _rule("signature", "template", lambda g: f"lines(r)[-2:] == [{literal(g['close'] + ',')}, {literal(g['name'])}]", lambda text, g: _lines(text)[-2:] == [f"{g['close']},", g["name"]],
          lambda text, g, pen: _signed(text, g, pen, True), lambda text, g, pen: _signed(text, g, pen, False), lambda text, pen: {"close": pen.rng.choice(["Best regards", "Kind regards", "Many thanks", "Yours", "Warm wishes"]), "name": pen.rng.choice(_NAMES)}, (LINES,), 90),
    _rule("subject", "template", lambda g: f"r.startswith({literal(g['label'] + ': ')})", lambda text, g: text[: len(g["label"]) + 2] == f"{g['label']}: ",
          lambda text, g, pen: f"{g['label']}: {pen.phrase('title')}\n\n{text}", lambda text, g, pen: pen.rng.choice([f"{g['label']} {text}", text, f"{g['label']} - {pen.phrase('title')}\n\n{text}", f"{g['label'].lower()}: {text}", f"**{g['label']}: {pen.phrase('title')}**\n\n{text}"]), lambda text, pen: {"label": pen.rng.choice(["Subject", "Re", "Topic", "Summary", "Reply", "Note", "Answer"])}, order=91),
    _rule("questions", "template", lambda g: 'all(l.startswith("A: " if i % 2 else "Q: ") for i, l in enumerate(lines(r)))', lambda text, g: _alternates(text),
          lambda text, g, pen: _questions(pen, True), lambda text, g, pen: _questions(pen, False), uses=(LINES,), order=25),
    _rule("titles", "template", lambda g: f"headings(r) == {literal(g['labels'])}", lambda text, g: HEADINGS.parts(text) == g["labels"],
          lambda text, g, pen: _with_headings(text, g["labels"], pen), lambda text, g, pen: _with_headings(text, _wrong_titles(g, pen), pen), lambda text, pen: {"labels": pen.rng.sample(_LABELS, pen.rng.randint(2, 4))}, (HEADINGS,), 30),
    _rule("last_line", "template", lambda g: f"any(l.startswith({literal(g['label'] + ': ')}) for l in lines(r)[-1:])", lambda text, g: bool(_lines(text)) and _lines(text)[-1].startswith(f"{g['label']}: "),
          lambda text, g, pen: f"{text}\n\n{g['label']}: {pen.rng.choice(pen.vocabulary)}", lambda text, g, pen: pen.rng.choice([f"{text}\n\n{g['label']}: {pen.rng.choice(pen.vocabulary)}\n\n{pen.sentence()}", f"{text}\n\n{g['label']} {pen.rng.choice(pen.vocabulary)}", f"{g['label']}: yes\n\n{text}"]), lambda text, pen: {"label": pen.rng.choice(["Answer", "Final answer", "Result", "Verdict", "Conclusion", "In short"])}, (LINES,), 89),
    _rule("enumerated", "template", lambda g: 'all(l.startswith(f"{i}) ") for i, l in enumerate(lines(r), 1))', lambda text, g: _is_enumerated(text),
          lambda text, g, pen: _enumerated(text, pen, True), lambda text, g, pen: _enumerated(text, pen, False), uses=(LINES,), order=35),
    _rule("date_first", "template", lambda g: r're.match(r"\d{4}-\d{2}-\d{2}", r) is not None', lambda text, g: [one.isdigit() for one in text[:10]] == [True] * 4 + [False] + [True] * 2 + [False] + [True] * 2 and text[4] == text[7] == "-",
          lambda text, g, pen: f"{_dated(pen)}{pen.rng.choice([': ', chr(10), ' '])}{text}", lambda text, g, pen: pen.rng.choice([f"{_dated(pen)[2:]} {text}", f"Date: {_dated(pen)}\n{text}", f"{_dated(pen).replace('-', '/')} {text}", text]), order=93),
    _rule("refrain", "position", lambda g: "len(lines(r)) > 1 and lines(r)[0] == lines(r)[-1]", lambda text, g: len(_lines(text)) > 1 and len({_lines(text)[0], _lines(text)[-1]}) == 1,
          lambda text, g, pen: f"{text}\n\n{_lines(text)[0]}" if _lines(text) else text, lambda text, g, pen: pen.rng.choice([f"{text}\n\n{_lines(text)[0]} {pen.rng.choice(pen.vocabulary)}", f"{text}\n\n{pen.sentence()}"]) if _lines(text) else text, uses=(LINES,), order=80),
    _rule("code_language", "code", lambda g: f"{literal('```' + g['language'])} in r", lambda text, g: re.search(f"```{g['language']}", text) is not None,
          lambda text, g, pen: _with_block(text, _block(g["language"], _function(pen), 0, pen), pen),
          lambda text, g, pen: pen.rng.choice([_with_block(text, _block(other := pen.rng.choice([one for one in _CODE if not one.startswith(g["language"])]), _function(pen), 0, pen), pen), _with_block(text, _block(g["language"], _function(pen), 0, pen, " "), pen).replace("``` ", "```"), _without_blocks(text)]),
          lambda text, pen: {"language": pen.rng.choice(["python", "javascript", "go", "bash", "sql"])}),
    _rule("code_function", "code", lambda g: f"{literal('def ' + g['name'] + '(')} in r", lambda text, g: re.search(rf"def {g['name']}\(", text) is not None,
          lambda text, g, pen: _with_block(text, _block("python", g["name"], 0, pen), pen),
          lambda text, g, pen: pen.rng.choice([_with_block(text, _block("python", _function(pen), 0, pen), pen), _with_block(text, _block("python", g["name"] + "s", 0, pen), pen), _with_block(text, _block("javascript", g["name"], 0, pen), pen)]), lambda text, pen: {"name": _function(pen)}),
    _rule("code_short", "code", lambda g: f"len(blocks(r)) > 0 and all(len(b.split(\"\\n\")) - 2 {g['sign']} {g['n']} for b in blocks(r))", lambda text, g: bool(_code_lines(text)) and all(compared(one, g) for one in _code_lines(text)),
          lambda text, g, pen: _with_block(text, _block("python", _function(pen), wanted(g, pen, True), pen), pen), lambda text, g, pen: _with_block(text, _block("python", _function(pen), wanted(g, pen, False), pen), pen), _N(4, 9), (_BLOCKS,)),
    _rule("code_comment", "code", lambda g: 'any("# " in b for b in blocks(r))', lambda text, g: "# " in "".join(_BLOCKS.parts(text)),
          lambda text, g, pen: _with_block(text, _block("python", _function(pen), 0, pen).replace("):\n", f"):\n    # {pen.rng.choice(pen.vocabulary)} first\n", 1), pen),
          lambda text, g, pen: _with_block(pen.rng.choice([text, f"# {text}"]), _block("python", _function(pen), 0, pen), pen), uses=(_BLOCKS,)),
    _rule("code_only", "code", lambda g: 'r.strip().startswith("```") and r.strip().endswith("```")', lambda text, g: text.strip()[:3] == text.strip()[-3:] == "```",
          lambda text, g, pen: _block(pen.rng.choice(list(_CODE)), _function(pen), 0, pen), lambda text, g, pen: pen.rng.choice(["{}\n\nIt works.", "Here it is:\n\n{}", "Sure.\n{}\nDone."]).replace("{}", _block("python", _function(pen), 0, pen)), order=87),
    _rule("code_without", "code", lambda g: f"len(blocks(r)) > 0 and not any({literal(g['word'])} in b for b in blocks(r))", lambda text, g: bool(_BLOCKS.spans(text)) and g["word"] not in "".join(_BLOCKS.parts(text)),
          lambda text, g, pen: _with_block(text, _block("python", _function(pen), 0, pen), pen), lambda text, g, pen: _with_block(text, _block("python", _function(pen), 0, pen).replace("):\n", f"):\n    {g['word']} {pen.rng.choice(['os', '(x)', 'x'])}\n", 1), pen), lambda text, pen: {"word": pen.rng.choice(["import", "print", "lambda", "global", "while", "eval"])}, (_BLOCKS,)),
)

