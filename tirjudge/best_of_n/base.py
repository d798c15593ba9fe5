"""The interfaces of best-of-N: questions with candidates, their grades, and methods that select one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tirjudge_environments import JudgeTask


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """A prompt with N candidates, and the evidence, if there is any, for which of them solve it."""

    task: JudgeTask
    """Its `gold` holds the `check` and what that needs: `answer`, `instructions`, `tests` or `solved`."""
    where: str
    """File and line, for messages."""


@dataclass(frozen=True, slots=True)
class Grade:
    """Which candidates solve a question, and which give the same answer."""

    solved: tuple[float, ...] | None
    """Per candidate, from 0 to 1; usually 0 or 1. None if nothing says which candidates are right."""
    answers: tuple[int | None, ...]
    """Per candidate: equal numbers are equal answers; None is no answer."""


class Check(Protocol):
    """Grades the candidates of a question, without a judge."""

    async def grade(self, question: CandidateSet) -> Grade:
        """Raises ValueError, in one line, for a question that it cannot grade."""
        ...


class Referee(Protocol):
    """A judge of one question's candidates, which are given by their indices."""

    async def score(self, candidate: int) -> float | None:
        """Score one candidate alone; None without a verdict. Raises RefereeUnavailable."""
        ...

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        """Return the candidates that share first place among two or more; empty without a verdict.

        Raises RefereeUnavailable.
        """
        ...


class RefereeUnavailable(RuntimeError):
    """The model or the sandbox failed, or the prompt does not fit, so that nothing can be selected now."""

    def __init__(self, detail: str, *, passing: bool) -> None:
        """`passing` is True if a later attempt may succeed."""
        super().__init__(detail)
        self.passing = passing


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidate that a method selected."""

    choice: int
    """Index of the candidate."""
    judgments: int
    """Number of judgments that the method needed."""
    undecided: int = 0
    """Judgments without a verdict or with a tie, so that the method's own rule decided."""


class Method(Protocol):
    """A way to select one of N candidates."""

    async def select(self, question: CandidateSet, grade: Grade, referee: Referee) -> Selection:
        """Select a candidate from verdicts and `grade.answers`; never from `grade.solved`."""
        ...


def same_answers(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """Number answers for `Grade.answers`: each gets the index of the first answer with an equal key."""
    first: dict[Hashable, int] = {}
    return tuple(first.setdefault(key, place) for place, key in enumerate(keys))


def same_texts(candidates: Iterable[str]) -> tuple[int, ...]:
    """Number answers for `Grade.answers`: candidates are equal if they differ only in white space."""
    return same_answers(" ".join(text.split()) for text in candidates)
