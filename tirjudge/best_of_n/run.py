"""Best-of-N over many questions: grading, selection by every method, and counts of solved questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tirjudge.best_of_n.base import CandidateSet, Grade, Method, RefereeUnavailable, Selection
from tirjudge.best_of_n.grading import Grades
from tirjudge.best_of_n.judgments import Judgments
from tirjudge.best_of_n.methods import majority
from tirjudge.best_of_n.questions import shown
from tirjudge.judging.batch import Failure, FailureCount
from tirjudge.rollout import as_finished
from tirjudge.statistics import Proportion

PASS, MAJORITY, ORACLE = "pass@1", "majority", "oracle"


@dataclass(frozen=True, slots=True)
class Picked:
    """A question with the candidate that each method selected."""

    question: CandidateSet
    grade: Grade
    majority: int
    """The candidate that a majority vote selects, without any judge."""
    selections: Mapping[str, Selection]
    """By the method's name."""

    @property
    def record(self) -> dict[str, Any]:
        """Its line in the file of picks; `solved` is null for a question without evidence."""
        solved = self.grade.solved
        return {
            "id": self.question.task.id,
            "where": self.question.where,
            "solved": None if solved is None else list(solved),
            "answers": list(self.grade.answers),
            "majority": self.majority,
            "selections": {
                name: {
                    "choice": one.choice,
                    "response": self.question.task.candidates[one.choice],
                    "solved": None if solved is None else solved[one.choice],
                    "judgments": one.judgments,
                    "undecided": one.undecided,
                }
                for name, one in self.selections.items()
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfN:
    """Selects from many questions, several at once."""

    grades: Grades
    judgments: Judgments | None
    """None without methods."""
    methods: Mapping[str, Method]
    truncate: int | None = None
    """Characters of a candidate beyond which its middle is cut out before it is judged."""
    at_once: int = 32
    """Questions in progress at the same time."""
    give_up_after: int = 50
    """Abort after N consecutive questions failed because of the model or the sandbox; 0 never aborts."""

    async def run(self, questions: Iterable[CandidateSet | Failure]) -> AsyncGenerator[Picked | Failure]:
        """Yield each question's result or the reason for its failure. Raises TooManyFailures."""
        failures = FailureCount(self.give_up_after)
        async with aclosing(as_finished(map(self._pick, questions), self.at_once)) as finished:
            async for picked, is_down in finished:
                yield picked
                if isinstance(picked, Failure) and is_down:
                    failures.is_down(picked.reason)
                else:
                    failures.works()

    async def _pick(self, question: CandidateSet | Failure) -> tuple[Picked | Failure, bool]:
        """Return a result, and True if the model or the sandbox failed in a way that may pass."""
        if isinstance(question, Failure):
            return question, False
        try:
            return await self._select(question), False
        except (RefereeUnavailable, ValueError) as error:
            is_down = isinstance(error, RefereeUnavailable) and error.passing
            return Failure(question.where, question.task.id, str(error)), is_down

    async def _select(self, question: CandidateSet) -> Picked:
        grade = await self.grades.grade(question)
        everyone = range(len(question.task.candidates))
        selections = {}
        if self.judgments is not None:
            seen = shown(question, self.truncate)
            referee = self.judgments.of(seen, grade.solved)
            # One method after the other, so that a method reuses the judgments of those before it.
            selections = {
                name: await method.select(seen, grade, referee) for name, method in self.methods.items()
            }
        return Picked(question, grade, majority(everyone, grade.answers), selections)


@dataclass(frozen=True, slots=True)
class Line:
    """Result of one method over all questions."""

    name: str
    solved: Proportion | None
    """Graded questions that it solved; for pass@1, the sum of the shares of candidates that solve each.

    None if no question was graded.
    """
    judgments: int = 0
    undecided: int = 0


@dataclass(slots=True)
class SolvedTally:
    """Solved questions by every method, pass@1, majority vote and the oracle (TIR-Judge, Table 7)."""

    questions: int = 0
    graded: int = 0
    """Questions for which it is known which candidates solve them."""
    candidates: int = 0
    _solved: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _squares: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Sums of squares, for the intervals of shares such as pass@1."""
    _judgments: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _undecided: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, picked: Picked) -> None:
        """Count one question."""
        solved = picked.grade.solved
        self.questions += 1
        self.candidates += len(picked.question.task.candidates)
        for name, one in picked.selections.items():
            self._judgments[name] += one.judgments
            self._undecided[name] += one.undecided
        if solved is None:
            return
        self.graded += 1
        self._add(PASS, sum(solved) / len(solved))
        self._add(MAJORITY, solved[picked.majority])
        for name, one in picked.selections.items():
            self._add(name, solved[one.choice])
        self._add(ORACLE, max(solved))

    def _add(self, name: str, share: float) -> None:
        self._solved[name] += share
        self._squares[name] += share * share

    @property
    def lines(self) -> list[Line]:
        """Results of pass@1, majority vote, the methods and the oracle; without grades, of the methods."""
        names = (PASS, MAJORITY, *self._judgments, ORACLE) if self.graded else tuple(self._judgments)
        return [self._line(name) for name in names]

    def _line(self, name: str) -> Line:
        solved = None
        if self.graded:
            solved = Proportion.of_sums(self._solved[name], self._squares[name], self.graded)
        # Not by indexing, which would add the name to the methods.
        return Line(name, solved, self._judgments.get(name, 0), self._undecided.get(name, 0))
