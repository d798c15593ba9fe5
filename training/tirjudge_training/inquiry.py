"""Dialogues with a model that is paid for: kept as they finish, and none asked for twice."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge.console_text import Interval, printable
from tirjudge.generation import Generator, Sampling
from tirjudge.rollout import Rollout, as_finished
from tirjudge.storage.records import read_trajectory, trajectory_record
from tirjudge.storage.result_file import digest
from tirjudge.storage.run_folder import RunFolder
from tirjudge_environments import Budget, Environment, StopReason, Trajectory, Usage, View
from tirjudge_sandbox import Sandbox
from tirjudge_training.grouping import Draw

SHOWN_FAILURES = 5
DOWN = (StopReason.GENERATOR_DOWN, StopReason.SANDBOX_DOWN)

Key = tuple[str, str, str, str, int]


class GivenUp(RuntimeError):
    """The model or the sandbox was down for too many dialogues in a row; one line."""


@dataclass(frozen=True, slots=True)
class Question:
    """One dialogue to be had: a view of a task, through the environment that the model is asked by."""

    draw: Draw
    view: View
    sample: int
    environment: Environment

    @property
    def key(self) -> Key:
        """Format, task, what the task says, view, sample: an edited task is not the one that was asked."""
        task = self.draw.task
        return self.draw.format, task.id, digest(task), self.view.name, self.sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How dialogues are had, and when no more of them."""

    budget: Budget
    sampling: Sampling
    seed: int
    concurrency: int
    give_up_after: int
    """Failed dialogues in a row."""


class Inquiry:
    """The dialogues of one file of a run folder: those that were had, and more of them when asked."""

    def __init__(
        self, name: str, run: RunFolder, file: str, terms: Terms, say: Callable[[str], None]
    ) -> None:
        self._name, self._run, self._file, self._terms, self._say = name, run, file, terms, say
        self.had: dict[Key, Trajectory] = {_key(row): read_trajectory(row) for row in run.read(file)}
        self.usage = sum((one.usage for one in self.had.values()), Usage())
        """Of all of them, those of earlier runs included."""
        self.failed = 0
        """Dialogues that this run tried and did not get."""
        self._in_a_row = 0

    async def ask(
        self,
        questions: Sequence[Question],
        generator: Generator,
        sandbox: Sandbox,
        *,
        learned: Callable[[Question, Trajectory], Awaitable[None]],
        more: Callable[[], bool] = lambda: True,
        yielded: Callable[[], str] = lambda: "",
    ) -> None:
        """Have the dialogues that were not had yet; each is on the disk before `learned` is given it.

        `more` says whether another one may be begun, `yielded` in a few words what came of them so far. A
        dialogue that failed for the model's or the sandbox's sake is not kept. Raises GivenUp, OSError.
        """
        waiting = [question for question in questions if question.key not in self.had]
        pace = _Pace(done=len(questions) - len(waiting), total=len(questions))

        async def have(question: Question) -> tuple[Question, Trajectory]:
            terms = self._terms
            rollout = Rollout(
                question.environment,
                generator,
                sandbox,
                budget=terms.budget,
                sampling=terms.sampling,
                seed=terms.seed,
            )
            return question, await rollout.trajectory(question.draw.task, question.view, question.sample)

        def works() -> Iterator[Any]:
            for question in waiting:
                if not more():
                    return
                yield have(question)

        async with aclosing(as_finished(works(), self._terms.concurrency)) as dialogues:
            async for question, trajectory in dialogues:
                self.usage += trajectory.usage
                if trajectory.stop in DOWN:
                    self._fail(question, trajectory)
                else:
                    self._keep(question, trajectory)
                    await learned(question, trajectory)
                if pace.due(finished=trajectory.stop not in DOWN):
                    self._tell(pace, yielded())
        if waiting:
            self._tell(pace, yielded())

    def _keep(self, question: Question, trajectory: Trajectory) -> None:
        self._in_a_row = 0
        format, id, told, _, _ = question.key
        row = {"format": format, "id": id, "digest": told, **trajectory_record(trajectory)}
        self._run.append(self._file, row)
        self.had[question.key] = trajectory

    def _fail(self, question: Question, trajectory: Trajectory) -> None:
        self.failed += 1
        self._in_a_row += 1
        if self.failed <= SHOWN_FAILURES:
            self._say(printable(f"{question.draw.task.id}: {trajectory.detail}"))
        if self._in_a_row >= self._terms.give_up_after:
            raise GivenUp(
                f"the {self._name} is given up after {self._in_a_row} failed dialogues in a row, "
                f"the last one because: {printable(trajectory.detail)}; the same command goes on, "
                f"{len(self.had)} dialogues are in {self._run.path / self._file}"
            )

    def _tell(self, pace: _Pace, yielded: str) -> None:
        tokens = f"{self.usage.prompt_tokens:,} tokens read, {self.usage.completion_tokens:,} written"
        failures = f"{self.failed} failed" if self.failed else ""
        parts = (f"{Path(self._file).stem} {pace.done}/{pace.total}", pace.rate, yielded, failures, tokens)
        self._say("  ".join(part for part in parts if part))


def _key(row: dict[str, Any]) -> Key:
    return row["format"], row["id"], row["digest"], row["view"], row["sample"]


class _Pace:
    """How far a run is, how fast, and whether it is time to say so."""

    def __init__(self, *, done: int, total: int) -> None:
        self.done, self.total = done, total
        self._first = done
        self._started, self._interval = time.monotonic(), Interval()

    def due(self, *, finished: bool) -> bool:
        self.done += finished
        return self._interval.over()

    @property
    def rate(self) -> str:
        each = (time.monotonic() - self._started) / max(1, self.done - self._first)
        left = each * (self.total - self.done)
        return f"{1 / max(each, 1e-9):.2f}/s  {left / 60:.1f} min left"
