"""Kinds of rules about templates: labels, greetings, signatures, fixed headings and frames."""

from __future__ import annotations

import re
from collections.abc import Sequence

from research.smol.training_rows.families.keywords import literal
from research.smol.training_rows.kinds.rules.base import (
    Given,
    Rule,
    compared,
    lines_of,
    rule,
    wanted,
)
from research.smol.training_rows.kinds.tokens import UNITS
from research.smol.training_rows.kinds.units import HEADINGS, LINES
from research.smol.training_rows.writing import Pen

_NAMES = ("Anna", "Tom", "Priya", "Sam", "Lucy", "Jonas", "Maria", "Ken")


def _wrapped(text: str, given: Given) -> str:
    return f"{given['open']}{text.strip()}{given['close']}"


def _unwrapped(text: str, given: Given, pen: Pen) -> str:
    body = text.strip().removeprefix(given["open"]).removesuffix(given["close"])
    wrong = [
        f"{given['open']}{body}",
        f"{body}{given['close']}",
        f"{given['close']}{body}{given['open']}",
        f"Here: {given['open']}{body}{given['close']}",
    ]
    return pen.rng.choice(wrong)


def _sectioned(text: str, given: Given, count: int, pen: Pen) -> str:
    parts = text.replace(given["mark"], " ").split(". ")
    while len(parts) < count:
        parts.append(pen.sentence().rstrip("."))
    size = max(1, len(parts) // max(1, count))
    groups = [
        ". ".join(parts[at * size : (at + 1) * size] if at < count - 1 else parts[at * size :])
        for at in range(count)
    ]
    return f"\n{given['mark']}\n".join(groups)


_LABELS = (
    "Name",
    "Date",
    "Topic",
    "Place",
    "Owner",
    "Status",
    "Goal",
    "Risk",
    "Budget",
    "Contact",
    "Summary",
    "Next step",
    "Deadline",
)


def _labelled(labels: Sequence[str], pen: Pen) -> str:
    return "\n".join(
        f"{label}: {pen.rng.choice([pen.word(), pen.phrase('title'), pen.topic])}" for label in labels
    )


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


def _with_first_line(text: str, line: str, known: str) -> str:
    body = text.strip()
    head, _, tail = body.partition("\n")
    if head.startswith(known):
        body = tail.strip()
    return f"{line}\n\n{body}" if line else body


def _greeting(given: Given, pen: Pen) -> str:
    name, word = given["name"], given["word"]
    other = pen.rng.choice([one for one in _NAMES if one != name])
    return pen.rng.choice(
        [
            f"{word} {other},",
            f"{'Hello' if word != 'Hello' else 'Hi'} {name},",
            f"{word} {name}!",
            f"{word} {name}",
            "",
        ]
    )


def _signed(text: str, given: Given, pen: Pen, keep: bool) -> str:
    lines = lines_of(text)
    body = "\n\n".join(lines[:-2] if lines[-2:-1] and lines[-2].endswith(",") and len(lines) > 3 else lines)
    closing = [f"{given['close']},", given["name"]]
    if not keep:
        other = pen.rng.choice([one for one in _NAMES if one != given["name"]])
        closing = pen.rng.choice(
            [
                [closing[0], other],
                ["Cheers,", given["name"]],
                [given["name"]],
                [closing[0]],
                [*closing, "PS: " + pen.sentence()],
            ]
        )
    return body + "\n\n" + "\n".join(closing)


def _questions(pen: Pen, keep: bool) -> str:
    count = pen.rng.randint(2, 4)
    lines = [line for _ in range(count) for line in (f"Q: What about {pen.word()}?", f"A: {pen.sentence()}")]
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
    lines = lines_of(text)
    return bool(lines) and all(
        line[:3] == ("A: " if number % 2 else "Q: ") for number, line in enumerate(lines)
    )


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
    lines = [re.sub(r"^\s*(?:[-*•#>]+|\d+[.)]) ?", "", line) for line in lines_of(text)][:8] or [
        pen.sentence()
    ]
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
    lines = lines_of(text)
    return bool(lines) and all(line.startswith(f"{number}) ") for number, line in enumerate(lines, 1))


def _dated(pen: Pen) -> str:
    return UNITS["dates"].new(pen)


TEMPLATES: tuple[Rule, ...] = (
    rule(
        "wrapped",
        "template",
        lambda g: f"r.strip().startswith({literal(g['open'])}) and r.strip().endswith({literal(g['close'])})",
        lambda text, g: (
            text.strip()[: len(g["open"])] == g["open"] and text.strip()[-len(g["close"]) :] == g["close"]
        ),
        lambda text, g, pen: _wrapped(text, g),
        _unwrapped,
        lambda text, pen: dict(
            zip(
                ("open", "close"),
                pen.rng.choice(
                    [
                        ("<<", ">>"),
                        ("[", "]"),
                        ("<answer>", "</answer>"),
                        ("{", "}"),
                        ("BEGIN", "END"),
                        ("***", "***"),
                        ("(", ")"),
                        ("<p>", "</p>"),
                        ("~", "~"),
                        ("START", "STOP"),
                    ]
                ),
                strict=True,
            )
        ),
        order=92,
    ),
    rule(
        "separated",
        "template",
        lambda g: f"len(r.split({literal(g['mark'])})) {g['sign']} {g['n']}",
        lambda text, g: compared(1 + text.count(g["mark"]), g),
        lambda text, g, pen: _sectioned(text, g, wanted(g, pen, True), pen),
        lambda text, g, pen: _sectioned(text, g, wanted(g, pen, False), pen),
        lambda text, pen: {
            "mark": pen.rng.choice(["***", "+++", "|||", "===", "###", "~~~", "%%%"]),
            "n": pen.rng.randint(2, 5),
        },
        order=40,
    ),
    rule(
        "labels",
        "template",
        lambda g: f'[l.split(":")[0] for l in lines(r)] == {literal(g["labels"])}',
        lambda text, g: _label_lines(text) == g["labels"],
        lambda text, g, pen: _labelled(g["labels"], pen),
        _mislabelled,
        lambda text, pen: {"labels": pen.rng.sample(_LABELS, pen.rng.randint(2, 4))},
        (LINES,),
        30,
    ),
    rule(
        "greeting",
        "template",
        lambda g: f"lines(r)[:1] == [{literal(g['word'] + ' ' + g['name'] + ',')}]",
        lambda text, g: lines_of(text)[:1] == [f"{g['word']} {g['name']},"],
        lambda text, g, pen: _with_first_line(text, f"{g['word']} {g['name']},", "Dear "),
        lambda text, g, pen: _with_first_line(text, _greeting(g, pen), f"{g['word']} "),
        lambda text, pen: {
            "word": pen.rng.choice(["Dear", "Hello", "Hi", "Good morning"]),
            "name": pen.rng.choice(_NAMES),
        },
        (LINES,),
        90,
    ),
    rule(
        "signature",
        "template",
        lambda g: f"lines(r)[-2:] == [{literal(g['close'] + ',')}, {literal(g['name'])}]",
        lambda text, g: lines_of(text)[-2:] == [f"{g['close']},", g["name"]],
        lambda text, g, pen: _signed(text, g, pen, True),
        lambda text, g, pen: _signed(text, g, pen, False),
        lambda text, pen: {
            "close": pen.rng.choice(["Best regards", "Kind regards", "Many thanks", "Yours", "Warm wishes"]),
            "name": pen.rng.choice(_NAMES),
        },
        (LINES,),
        90,
    ),
    rule(
        "subject",
        "template",
        lambda g: f"r.startswith({literal(g['label'] + ': ')})",
        lambda text, g: text[: len(g["label"]) + 2] == f"{g['label']}: ",
        lambda text, g, pen: f"{g['label']}: {pen.phrase('title')}\n\n{text}",
        lambda text, g, pen: pen.rng.choice(
            [
                f"{g['label']} {text}",
                text,
                f"{g['label']} - {pen.phrase('title')}\n\n{text}",
                f"{g['label'].lower()}: {text}",
                f"**{g['label']}: {pen.phrase('title')}**\n\n{text}",
            ]
        ),
        lambda text, pen: {
            "label": pen.rng.choice(["Subject", "Re", "Topic", "Summary", "Reply", "Note", "Answer"])
        },
        order=91,
    ),
    rule(
        "questions",
        "template",
        lambda g: 'all(l.startswith("A: " if i % 2 else "Q: ") for i, l in enumerate(lines(r)))',
        lambda text, g: _alternates(text),
        lambda text, g, pen: _questions(pen, True),
        lambda text, g, pen: _questions(pen, False),
        uses=(LINES,),
        order=25,
    ),
    rule(
        "titles",
        "template",
        lambda g: f"headings(r) == {literal(g['labels'])}",
        lambda text, g: HEADINGS.parts(text) == g["labels"],
        lambda text, g, pen: _with_headings(text, g["labels"], pen),
        lambda text, g, pen: _with_headings(text, _wrong_titles(g, pen), pen),
        lambda text, pen: {"labels": pen.rng.sample(_LABELS, pen.rng.randint(2, 4))},
        (HEADINGS,),
        30,
    ),
    rule(
        "last_line",
        "template",
        lambda g: f"any(l.startswith({literal(g['label'] + ': ')}) for l in lines(r)[-1:])",
        lambda text, g: bool(lines_of(text)) and lines_of(text)[-1].startswith(f"{g['label']}: "),
        lambda text, g, pen: f"{text}\n\n{g['label']}: {pen.word()}",
        lambda text, g, pen: pen.rng.choice(
            [
                f"{text}\n\n{g['label']}: {pen.word()}\n\n{pen.sentence()}",
                f"{text}\n\n{g['label']} {pen.word()}",
                f"{g['label']}: yes\n\n{text}",
            ]
        ),
        lambda text, pen: {
            "label": pen.rng.choice(["Answer", "Final answer", "Result", "Verdict", "Conclusion", "In short"])
        },
        (LINES,),
        89,
    ),
    rule(
        "enumerated",
        "template",
        lambda g: 'all(l.startswith(f"{i}) ") for i, l in enumerate(lines(r), 1))',
        lambda text, g: _is_enumerated(text),
        lambda text, g, pen: _enumerated(text, pen, True),
        lambda text, g, pen: _enumerated(text, pen, False),
        uses=(LINES,),
        order=35,
    ),
    rule(
        "date_first",
        "template",
        lambda g: r're.match(r"\d{4}-\d{2}-\d{2}", r) is not None',
        lambda text, g: (
            [one.isdigit() for one in text[:10]] == [True] * 4 + [False] + [True] * 2 + [False] + [True] * 2
            and text[4] == text[7] == "-"
        ),
        lambda text, g, pen: f"{_dated(pen)}{pen.rng.choice([': ', chr(10), ' '])}{text}",
        lambda text, g, pen: pen.rng.choice(
            [
                f"{_dated(pen)[2:]} {text}",
                f"Date: {_dated(pen)}\n{text}",
                f"{_dated(pen).replace('-', '/')} {text}",
                text,
            ]
        ),
        order=93,
    ),
)
