"""Copied programs: one text that a model runs for many rows, with values that these rows do not hold.

Rules that many prompts share rightly share a program, whose numbers and words are in the rows. A copied
program checks something else, and what it decides is no evidence.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from tirjudge_environments.checkers.rules import NUMBER_WORDS

LEAST_PROMPTS, LEAST_SHARE = 8, 0.25
"""Different prompts, and the share of all rows, that a copied program serves at least."""
_MOST_CHARACTERS, _MOST_TEXTS = 20_000, 4096
"""Characters of a program that is read; texts that are counted at a time."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_FORMATS = re.compile(
    "of|tie|responses?|winner|verdict|better|best|both|equal|same|neither|none|yes|no|true|false|pass(ed)?|"
    "fail(ed)?|ok|error|main|utf|ascii|json"
)
"""Words by which programs name the outcome or read a text."""
_PRINTING = ("print", "round", "format", "join", "encode", "decode")
_ARITHMETIC = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_NO_WORDS = re.compile(r"\\[A-Za-z]|\[[^\]]*\]|\(\?[A-Za-z:]*")
"""The parts of a pattern whose letters are no words."""
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBERS = {
    **{word: value for value, word in enumerate(NUMBER_WORDS)},
    **dict(zip(_TENS, range(20, 100, 10), strict=True)),
    **dict.fromkeys(("twice", "both", "pair", "couple", "double", "second"), 2),
    **dict.fromkeys(("thrice", "triple", "third"), 3),
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "million": 1_000_000,
}


class Values(NamedTuple):
    """The numbers above 1 and the quoted words by which a program judges."""

    numbers: frozenset[float]
    words: frozenset[str]

    def without(self, texts: str) -> Values:
        """Return the values that texts do not hold; a number may be a word there, or off by one."""
        lower = texts.lower()
        held = _numbers_in(lower) if self.numbers else set()
        return Values(
            frozenset(one for one in self.numbers if not {one - 1, one, one + 1} & held),
            frozenset(word for word in self.words if word not in lower),
        )

    def __str__(self) -> str:
        named = [f"{one:.15g}" for one in sorted(self.numbers)] + [repr(one) for one in sorted(self.words)]
        return ", ".join(named[:5])


@lru_cache(maxsize=512)
def values_of(program: str) -> Values:
    """Return the values of a program, without the letters of responses and what it only prints.

    A program that cannot be read has none.
    """
    numbers, words = set[float](), set[str]()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(program if len(program) <= _MOST_CHARACTERS else "")
        nodes = list(ast.walk(tree))
        aside = {id(one) for node in nodes for one in _aside(node)}
        for node in nodes:
            if not isinstance(node, ast.Constant) or id(node) in aside:
                continue
            if isinstance(node.value, str):
                words.update(re.findall(r"[^\W\d_]{2,}", _NO_WORDS.sub(" ", node.value).lower()))
                numbers.update(float(count) for count in re.findall(r"\{([0-9]{1,15})", node.value))
            elif isinstance(node.value, int | float):
                numbers.add(float(min(node.value, 10**18)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Values(frozenset(), frozenset())
    kept = (word for word in words if not (_FORMATS.fullmatch(word) or _LETTERS.startswith(word)))
    return Values(frozenset(one for one in numbers if one > 1), frozenset(kept))


def _aside(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a node that are formats, places and arithmetic, not checks."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _PRINTING:
            return [*node.args, *ast.iter_child_nodes(node.func)]
        case ast.BinOp(left=one, op=operator, right=other) if isinstance(operator, _ARITHMETIC):
            return [one, other]
        case ast.IfExp(body=one, orelse=other):
            return [one, other]
        case ast.JoinedStr(values=parts) | ast.Dict(keys=parts):
            return filter(None, parts)
        case ast.Subscript(slice=place):
            return ast.walk(place)
        case ast.keyword(value=one) | ast.Expr(value=ast.Constant() as one):
            return [one]
    return []


def _numbers_in(text: str) -> set[float]:
    """Return the numbers that a text in lower case names by digits or by English words."""
    digits = re.findall(r"[0-9]{1,15}(?:\.[0-9]{1,15})?", f"{text} {text.replace(',', '')}")
    words = {_NUMBERS[word] for word in re.findall("[a-z]+", text) if word in _NUMBERS}
    joined = {value for one in words for other in words for value in (one + other, one * other)}
    return {*map(float, digits), *map(float, words | joined)}


@dataclass(slots=True)
class CopiedProgram:
    """A text, and the rows that ran it and do not hold its values."""

    text: str
    missing: Values
    """The values that the first of the rows does not hold."""
    rows: int = 0
    prompts: set[int] = field(default_factory=set)
    """Hashes of the different prompts of these rows."""
    decided: dict[str, tuple[float | None, str]] = field(default_factory=dict)
    """The credit, None without a label, and the prompt of each row that the program decided, by its id."""

    def __str__(self) -> str:
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        checks = [line for line in lines if values_of(line) != Values(frozenset(), frozenset())] or lines
        return checks[-1] if checks else ""


@dataclass(slots=True)
class CopiedPrograms:
    """Counts the texts that rows ran though they do not hold the texts' values."""

    rows: int = 0
    dropped: list[tuple[float | None, str]] = field(default_factory=list)
    """Credits and prompts of decided rows whose rare programs are no longer counted."""
    _found: dict[str, CopiedProgram] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any], credit: float | None, prompt: str) -> bool:
        """Count a row of a result file; return True if it keeps the credit of a decided row."""
        self.rows += 1
        texts, kept = None, False
        for text, last in _programs(row).items():
            values = values_of(text)
            if not any(values):
                continue
            texts = self._texts(row) if texts is None else texts
            if not texts or not any(missing := values.without(texts)):
                continue
            one = self._found.setdefault(text, CopiedProgram(text, missing))
            one.rows += 1
            one.prompts.add(hash(prompt))
            if last and row.get("decided") and row["stop"] == "verdict":
                one.decided[str(row["id"])] = credit, prompt
                kept = True
        if len(self._found) > _MOST_TEXTS:
            rare = [text for text, one in self._found.items() if one.rows < 2]
            self.dropped += [credit for text in rare for credit in self._found.pop(text).decided.values()]
        return kept

    def found(self) -> list[CopiedProgram]:
        """Return the copied programs, that of most rows first."""
        least = LEAST_SHARE * self.rows
        copied = [
            one for one in self._found.values() if len(one.prompts) >= LEAST_PROMPTS and one.rows >= least
        ]
        return sorted(copied, key=lambda one: -one.rows)

    def others(self) -> Iterator[tuple[float | None, str]]:
        """Yield the credit and the prompt of each kept row that no copied program decided."""
        copied = {id for one in self.found() for id in one.decided}
        yield from self.dropped
        yield from {
            id: credit
            for one in self._found.values()
            for id, credit in one.decided.items()
            if id not in copied
        }.values()

    def _texts(self, row: Mapping[str, Any]) -> str:
        """Return all that a row asks; empty where that is not known, also for a row with files."""
        if not row.get("prompt") or row.get("prompt_files") or any(row.get("files") or ()):
            return ""
        criteria = [one.get("text", "") for one in row.get("criteria") or ()]
        texts = [*_strings([row["prompt"], row.get("tools")]), str(row.get("reference") or ""), *criteria]
        return "\n".join(texts)


def _programs(row: Mapping[str, Any]) -> dict[str, bool]:
    """Return the programs that a model ran for a row, and whether each was the last of a dialogue."""
    criteria, found = row.get("criteria") or (), dict[str, bool]()
    for view in row["views"]:
        number = view.get("criterion")
        if number is not None and number < len(criteria) and criteria[number].get("checker"):
            continue
        ran = [
            one["text"]
            for one in view["segments"]
            if one["kind"] == "program" and not one.get("tool") and one.get("status") == "ok"
        ]
        for place, text in enumerate(ran, 1):
            found[text] = found.get(text, False) or place == len(ran)
    return found


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for one in value.values() for text in _strings(one))
    elif isinstance(value, Iterable):
        yield from (text for one in value for text in _strings(one))
