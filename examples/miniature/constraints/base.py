"""Families of constraints: wordings, a verifier, a writer of responses and a judge's program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from examples.miniature.constraints.words import Split

Shown = Literal["pointwise", "pairwise", "listwise"]
"""The variables of a judge's program: `response`; `response_a` and `response_b`; or `responses`."""

WORD_SETUP = "w = prompt.split('\"')[1]\n"
NUMBER_SETUP = 'import re\nn = int(re.findall(r"\\d+", prompt)[0])\n'
ATTEMPTS = 1000

LOOPS: dict[Shown, str] = {
    "pointwise": "r = response\nprint({check})",
    "pairwise": "for r in [response_a, response_b]: print({check})",
    "listwise": 'print(*[a for a, r in zip("ABCD", responses) if {check}])',
}
"""The last lines of a judge's program, which print True or False per response, or the letters in a list."""


@dataclass(frozen=True, slots=True)
class Slots:
    """The values that fill the wording of an instruction."""

    word: str = ""
    """A word or a single letter, in the only double quotes of the instruction."""
    number: int = 0
    """The only number of the instruction."""


@dataclass(frozen=True, slots=True)
class Wordings:
    """Every frame with every filling; combinations whose row + column is 3 modulo 4 are held out.

    A held-out wording consists of parts that occur in training, in a combination that does not.
    """

    frames: tuple[str, ...]
    """Sentences with `{}` for the filling, `{word}` and `{number}` for the slots."""
    fillings: tuple[str, ...]

    def of(self, split: Split) -> tuple[str, ...]:
        heldout = split.name == "heldout"
        return tuple(
            frame.replace("{}", filling)
            for row, frame in enumerate(self.frames)
            for column, filling in enumerate(self.fillings)
            if ((row + column) % 4 == 3) is heldout
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of constraint, from its wordings to the program that checks it."""

    name: str
    wordings: Wordings
    slots: Callable[[Random, Split], Slots]
    holds: Callable[[str, Slots], bool]
    """The verifier: True if a response keeps the constraint."""
    write: Callable[[Random, Split, Slots, bool], str]
    """An attempt at a response that keeps (True) or breaks (False) it; `Constraint.write` checks it."""
    setup: str = ""
    """First lines of a judge's program, which parse `w` and `n` from the variable `prompt`."""
    check: str = ""
    """An expression over `r`, true iff it keeps the constraint; empty if a judge has to read."""
    domain: str = "instruction-following"

    @property
    def checkable(self) -> bool:
        """True if a program decides it; otherwise a judge has to read, and a call is a fault (TIR §4.2)."""
        return bool(self.check)

    def program(self, shown: Shown) -> str:
        """Return the reference judge's program; `LOOPS` says what it prints.

        Raises ValueError for a family that is decided by reading.
        """
        if not self.checkable:
            raise ValueError(f"the family {self.name!r} is decided by reading: it has no program")
        return self.setup + LOOPS[shown].format(check=self.check)

    def draw(self, rng: Random, split: Split) -> Constraint:
        """Sample a constraint with the wordings, words and thresholds of a split."""
        slots = self.slots(rng, split)
        wording = rng.choice(self.wordings.of(split)).format(word=slots.word, number=slots.number)
        return Constraint(self, slots, wording[0].upper() + wording[1:])


@dataclass(frozen=True, slots=True)
class Constraint:
    """A family with filled slots and a chosen wording."""

    family: Family
    slots: Slots
    text: str

    def holds(self, response: str) -> bool:
        return self.family.holds(response, self.slots)

    def write(self, rng: Random, split: Split, *, good: bool) -> str:
        """Write a response that keeps (`good`) or breaks it; raises RuntimeError if none is found."""
        for _ in range(ATTEMPTS):
            response = self.family.write(rng, split, self.slots, good)
            if self.holds(response) is good:
                return response
        raise RuntimeError(f"no {'good' if good else 'bad'} response found for {self.text!r}")


def no_slots(rng: Random, split: Split) -> Slots:
    return Slots()


AT_LEAST = ("at least {number}", "no fewer than {number}", "{number} or more", "a minimum of {number}")
AT_MOST = ("at most {number}", "no more than {number}", "{number} or fewer", "a maximum of {number}")
EXACTLY = ("exactly {number}", "precisely {number}", "just {number}", "a total of {number}")
