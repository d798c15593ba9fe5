"""A baseline without a judge: the program of the most similar training prompt, its literals substituted.

Numbers and quoted words of a program that occur in its own prompt are replaced by those at the same place in
the new prompt: its second number by the new prompt's second number. The sandbox runs the program on the new
responses, and the one with the higher count wins. A tie or an error decides nothing and counts one half.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from research.smol.sources import Fields
from research.smol.summary import counts
from tirjudge_sandbox import Limits, Program, Sandbox, Status

LIMITS = Limits(wall_seconds=10.0, cpu_seconds=4.0)
_NUMBER_WORDS = {
    word: number
    for number, word in enumerate(
        (
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        )
    )
}
_NUMBER = re.compile(rf"\d+|\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“]([^\"”\n]{1,200})[\"”]|(?<!\w)['‘]([^'’\n]{1,80})['’](?!\w)")


def numbers(prompt: str) -> list[int]:
    """Return a prompt's numbers in order, digits and words up to twelve."""
    found = (match[0].lower() for match in _NUMBER.finditer(prompt))
    return [_NUMBER_WORDS[one] if one in _NUMBER_WORDS else int(one) for one in found]


def quoted(prompt: str) -> list[str]:
    """Return a prompt's quoted texts in order."""
    return [match[1] or match[2] for match in _QUOTED.finditer(prompt)]


def substituted(program: str, old: str, new: str) -> str:
    """Return the program of an old prompt with literals of the new prompt; itself if it cannot be parsed."""
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError):
        return program
    places = [(numbers(old), numbers(new)), (quoted(old), quoted(new))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, str):
            for before, after in places:
                at = next((i for i, value in enumerate(before) if value == node.value), None)
                if at is not None and at < len(after):
                    node.value = after[at]
    return ast.unparse(tree)


class Nearest:
    """The training rows that have a program, by the cosine of their prompts' TF-IDF vectors."""

    def __init__(self, training: Sequence[Fields]) -> None:
        by_prompt = {
            row["prompt"]: row for row in training if (row.get("demonstration") or {}).get("program")
        }
        self.rows = list(by_prompt.values())
        counted = Counter(term for prompt in by_prompt for term in set(_terms(prompt)))
        self._columns = {term: number for number, term in enumerate(counted)}
        self._weights = np.log(1 + len(self.rows) / np.array(list(counted.values()), dtype=np.float64))
        columns = [self._known(prompt) for prompt in by_prompt]
        values = [self._weights[one] / np.linalg.norm(self._weights[one]) for one in columns]
        starts = np.cumsum([0, *map(len, columns)])
        self._matrix = csr_array(
            (np.concatenate(values), np.concatenate(columns), starts), (len(columns), len(counted))
        )

    def _known(self, prompt: str) -> NDArray[np.intp]:
        """Return the columns of the terms of a prompt that training prompts have."""
        return np.array(
            sorted({self._columns[term] for term in _terms(prompt) if term in self._columns}), np.intp
        )

    def __call__(self, prompt: str) -> Fields:
        """Return the row with the most similar prompt."""
        known = self._known(prompt)
        # The norm of the new prompt scales all scores alike.
        asked = np.zeros(len(self._columns))
        asked[known] = self._weights[known]
        return self.rows[int((self._matrix @ asked).argmax())]


def _terms(prompt: str) -> list[str]:
    tokens = re.findall(r"[a-z']+|\d+|[^\w\s]", prompt.lower())
    return [*tokens, *map(" ".join, pairwise(tokens))]


async def credit(nearest: Nearest, row: Fields, sandbox: Sandbox) -> tuple[float, str]:
    """Return 1 for a right choice, 0 for a wrong one and a half for none; and what the program did."""
    taken = nearest(row["prompt"])
    source = substituted(taken["demonstration"]["program"], taken["prompt"], row["prompt"])
    values = await _counts(source, taken.get("environment") == "tir-pointwise", row, sandbox)
    if isinstance(values, str):
        return 0.5, values
    if values.count(max(values)) > 1:
        return 0.5, "tie"
    return float(values.index(max(values)) == row["label"]), "decided"


async def _counts(source: str, single: bool, row: Fields, sandbox: Sandbox) -> list[float] | str:
    """Return the number that a program prints for each response, or why there is none.

    A `single` program was written for one response: it runs once for each.
    """
    responses = row["responses"]
    letters = {f"response_{'abcd'[i]}": text for i, text in enumerate(responses)}
    together = {"responses": responses, **letters}
    values: list[float] = []
    for bound in [{"response": text} for text in responses] if single else [together]:
        done = await sandbox.run(Program(source=source, bindings={"prompt": row["prompt"], **bound}), LIMITS)
        if done.status is not Status.OK:
            return "error"
        found = [float(done.stdout[start:end]) for start, end in counts(done.stdout)]
        # A single program prints the count first, then how many constraints there are.
        values += found[:1] if single else found
    return values if len(values) == len(responses) else "unreadable"
