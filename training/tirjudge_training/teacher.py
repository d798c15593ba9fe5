"""The warm-up's teacher: it checks with programs, often wrongly, so that RL finds something to improve."""

from __future__ import annotations

from random import Random

from pydantic import BaseModel, ConfigDict, Field

from tirjudge_environments import JudgeTask, View
from tirjudge_environments.constraints import CHECKABLE, LOOPS, Family, Shown
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
"""The check that the teacher mostly writes for these families; it runs, and decides little or nothing."""

CRASHES = (("n = ", "k = "), ("w = ", "v = "), ("import re\n", ""), ("[0]", "[1]"), ("print", "show"))
"""Mistakes that end in an error, where they apply."""

DECISIVE: dict[Shown, tuple[tuple[str, ...], ...]] = {
    "pointwise": (("True",), ("False",)),
    "pairwise": (("True", "False"), ("False", "True")),
    "listwise": (("A",), ("B",), ("C",), ("D",)),
}
"""The printed lines that decide for each position; a lone response is good in position 0 and bad in 1."""

UNDECIDED: dict[Shown, tuple[str, ...]] = {
    "pointwise": ("NameError: name 's' is not defined",),
    "pairwise": ("True\nTrue", "False\nFalse", "NameError: name 's' is not defined"),
    "listwise": ("A B C D", "B D", "(no output)"),
}
"""Outputs after which the teacher guesses."""

GOOD_SCORE, BAD_SCORE = 9, 2


class Habits(BaseModel):
    """How often the teacher does what; shares from 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    careful: float = Field(default=0.9, ge=0, le=1)
    """Right ones among the programs that run, in the families that it understands."""
    careless: float = Field(default=0.35, ge=0, le=1)
    """The same in those that it has a misconception about."""
    crash: float = Field(default=0.08, ge=0, le=1)
    """Programs that end in an error."""
    misread: float = Field(default=0.03, ge=0, le=1)
    """Verdicts given at random in spite of a program's output."""
    needless: float = Field(default=0.5, ge=0, le=1)
    """Dialogues with a program where reading decides."""


class Teacher:
    """Writes the turns of one dialogue."""

    def __init__(self, rng: Random, habits: Habits, family: Family, task: JudgeTask, view: View) -> None:
        self._rng, self._habits, self._family, self._task, self._view = rng, habits, family, task, view

    def program(self, shown: Shown) -> str | None:
        """The program of the first turn; None where the teacher reads instead."""
        if not self._family.checkable:
            if self._rng.random() >= self._habits.needless:
                return None
            return LOOPS[shown].format(check="len(r)")
        return program(self._rng, self._habits, self._family, shown)

    def verdict(self, shown: Shown, output: str | None) -> str:
        """The last turn, from what a program printed or, without one, from the label."""
        reads = output is None or not self._family.checkable
        found = self._labelled() if reads else marked(shown, output or "")
        if self._rng.random() < self._habits.misread:
            found = None
        return answer(self._rng, shown, found)

    def _labelled(self) -> int:
        """The shown position of the good response; 1, behind the last one, when a lone response is bad."""
        order = self._view.order
        return order.index(self._task.label) if self._task.label in order else 1


def program(rng: Random, habits: Habits, family: Family, shown: Shown) -> str:
    """A program for a checkable family: right, misconceived, for another family, or broken."""
    right = family.program(shown)
    if rng.random() < habits.crash:
        return right.replace(*rng.choice([crash for crash in CRASHES if crash[0] in right]), 1)
    misconception = MISCONCEPTIONS.get(family.name)
    if rng.random() < (habits.careful if misconception is None else habits.careless):
        return right
    if misconception is not None:
        return right.replace(family.check, misconception)
    return rng.choice([other for other in CHECKABLE if other is not family]).program(shown)


def marked(shown: Shown, output: str) -> int | None:
    """The position that alone passed; 1 for a lone response that failed; None when nothing is decided.

    `output` is as the session shows it, fence included.
    """
    printed = output.splitlines()[1:-1]
    return next((i for i, lines in enumerate(DECISIVE[shown]) if printed == list(lines)), None)


def answer(rng: Random, shown: Shown, found: int | None) -> str:
    """A few words and the tagged answer; a guess where nothing was found."""
    position = rng.randrange(len(DECISIVE[shown])) if found is None else found
    if shown == "pointwise":
        words, score = ("It keeps it.", GOOD_SCORE) if position == 0 else ("It breaks it.", BAD_SCORE)
        return f"{'Maybe.' if found is None else words}\n<score>{score}</score>"
    name = letter(position)
    return f"{f'Maybe {name}.' if found is None else f'{name} keeps it.'}\n<preference>{name}</preference>"
