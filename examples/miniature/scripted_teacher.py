"""The scripted teacher of the warm-up, often wrong on purpose, so that RL has something to improve."""

from __future__ import annotations

from random import Random

from pydantic import BaseModel, ConfigDict, Field

from examples.miniature.constraints import CHECKABLE, LOOPS, Family, Shown
from tirjudge_environments import JudgeTask, View
from tirjudge_environments.orders import letter

MISCONCEPTIONS = {
    "lacks": "w not in prompt.lower()",
    "starts": "r.startswith(w)",
    "ends": "r.lower().endswith(w)",
    "letter-at-least": "len(r) >= n",
    "words-at-least": "len(r) >= n",
    "words-exactly": "len(r) == n",
    "lines": "len(r.split()) == n",
    "bullets": 'r.count("- ") == n',
    "characters-at-most": "len(r.split()) <= n",
    "digits": "sum(c.isalpha() for c in r) >= n",
    "quoted": 'r[0] == r[-1] == "\'"',
    "question": '"?" in r',
}
"""The wrong check that the teacher mostly writes for these families: it runs, but decides little."""

CRASHES = (("n = ", "k = "), ("w = ", "v = "), ("import re\n", ""), ("[0]", "[1]"), ("print", "show"))
"""Replacements that make a program end in an error, where they apply."""

DECISIVE: dict[Shown, tuple[tuple[str, ...], ...]] = {
    "pointwise": (("True",), ("False",)),
    "pairwise": (("True", "False"), ("False", "True")),
    "listwise": (("A",), ("B",), ("C",), ("D",)),
}
"""The printed lines that decide for each position; for a single response, 0 is good and 1 is bad."""

UNDECIDED: dict[Shown, tuple[str, ...]] = {
    "pointwise": ("NameError: name 's' is not defined",),
    "pairwise": ("True\nTrue", "False\nFalse", "NameError: name 's' is not defined"),
    "listwise": ("A B C D", "B D", "(no output)"),
}
"""Outputs that decide nothing, after which the teacher guesses."""

GOOD_SCORE, BAD_SCORE = 9, 2


class Habits(BaseModel):
    """The error rates of the teacher, as shares from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    careful: float = Field(default=0.9, ge=0, le=1)
    """Share of right programs among those that run, in the families without a misconception."""
    careless: float = Field(default=0.35, ge=0, le=1)
    """The same share in the families with a misconception."""
    crash: float = Field(default=0.08, ge=0, le=1)
    """Share of programs that end in an error."""
    misread: float = Field(default=0.03, ge=0, le=1)
    """Share of verdicts that are random in spite of a program's output."""
    needless: float = Field(default=0.5, ge=0, le=1)
    """Share of dialogues with a useless program, where only reading decides."""


class Teacher:
    """Writes the turns of one dialogue."""

    def __init__(self, rng: Random, habits: Habits, family: Family, task: JudgeTask, view: View) -> None:
        self._rng, self._habits, self._family, self._task, self._view = rng, habits, family, task, view

    def program(self, shown: Shown) -> str | None:
        """Return the program of the first turn; None if the teacher decides by reading."""
        if not self._family.checkable:
            if self._rng.random() >= self._habits.needless:
                return None
            return LOOPS[shown].format(check="len(r)")
        return program(self._rng, self._habits, self._family, shown)

    def verdict(self, shown: Shown, output: str | None) -> str:
        """Return the last turn: from a program's output or, without a program, from the label."""
        reads = output is None or not self._family.checkable
        position = self._labelled() if reads else decided_position(shown, output or "")
        if self._rng.random() < self._habits.misread:
            position = None  # a guess, in spite of the output
        return answer(self._rng, shown, position)

    def _labelled(self) -> int:
        """Return the shown position of the good response, or 1 if a single response is bad."""
        order = self._view.order
        return order.index(self._task.label) if self._task.label in order else 1


def program(rng: Random, habits: Habits, family: Family, shown: Shown) -> str:
    """Return a program for a checkable family: right, misconceived, for another family, or broken."""
    right = family.program(shown)
    # Only a crash that changes this program: not every replacement occurs in every program.
    if rng.random() < habits.crash:
        return right.replace(*rng.choice([crash for crash in CRASHES if crash[0] in right]), 1)
    misconception = MISCONCEPTIONS.get(family.name)
    if rng.random() < (habits.careful if misconception is None else habits.careless):
        return right
    if misconception is not None:
        return right.replace(family.check, misconception)
    return rng.choice([other for other in CHECKABLE if other is not family]).program(shown)


def decided_position(shown: Shown, output: str) -> int | None:
    """Return the only position that passed, or 1 for a single response that failed; None if undecided.

    `output` is the text that the session shows, with its fence.
    """
    printed = output.splitlines()[1:-1]  # without the lines of the fence
    return next((i for i, lines in enumerate(DECISIVE[shown]) if printed == list(lines)), None)


def answer(rng: Random, shown: Shown, decided: int | None) -> str:
    """Return a few words and the tagged answer, which is a guess if no position was decided."""
    position = rng.randrange(len(DECISIVE[shown])) if decided is None else decided
    if shown == "pointwise":
        words, score = ("It keeps it.", GOOD_SCORE) if position == 0 else ("It breaks it.", BAD_SCORE)
        return f"{'Maybe.' if decided is None else words}\n<score>{score}</score>"
    name = letter(position)
    return f"{f'Maybe {name}.' if decided is None else f'{name} keeps it.'}\n<preference>{name}</preference>"
