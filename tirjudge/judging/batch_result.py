"""Batches in memory: the rows of a Python program judged concurrently, with every judgment and failure."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any, overload

from tirjudge.console_text import Interval, printable
from tirjudge.generation.spending import CostReached
from tirjudge.judging.batch import Failure, FailureCount, Plan, SlowStart, TooManyFailures, kind_of
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import read_question, truncated
from tirjudge.records.answers import JudgedProgram
from tirjudge.rollout.concurrency import as_finished
from tirjudge.statistics import Proportion
from tirjudge_environments.tasks import RowError

Progress = Callable[[int, int], None]
"""Called after each row with the rows done and the rows in all."""


class NoRowJudged(RuntimeError):
    """Not a single row of a batch could be judged; the message has the most frequent reason in one line."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        super().__init__(f"none of {len(failures)} rows could be judged: {most_frequent(failures)}")


@dataclass(frozen=True, slots=True, repr=False)
class BatchResult(Sequence[Judgment | Failure]):
    """The judgments of a batch in the order of its rows; a row that could not be judged has its Failure."""

    rows: tuple[Judgment | Failure, ...]

    @overload
    def __getitem__(self, index: int) -> Judgment | Failure: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Judgment | Failure, ...]: ...

    def __getitem__(self, index: int | slice) -> Judgment | Failure | tuple[Judgment | Failure, ...]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Judgment | Failure]:
        return iter(self.rows)

    @property
    def judgments(self) -> tuple[Judgment, ...]:
        """The judgments of the rows that were judged, with or without a verdict."""
        return tuple(row for row in self.rows if isinstance(row, Judgment))

    @property
    def failures(self) -> tuple[Failure, ...]:
        return tuple(row for row in self.rows if isinstance(row, Failure))

    @property
    def programs(self) -> tuple[JudgedProgram, ...]:
        """The programs of all judgments, in the order of the rows."""
        return tuple(program for judgment in self.judgments for program in judgment.programs)

    @property
    def accuracy(self) -> Proportion | None:
        """The mean credit of labelled rows, where ties are shared; None without labels.

        Rows whose verdict was left open are not counted.
        """
        credits = [one.credit for one in self.judgments if one.credit is not None]
        squares = sum(credit**2 for credit in credits)
        return Proportion.of_sums(sum(credits), squares, len(credits)) if credits else None

    def to_dict(self) -> dict[str, Any]:
        """Return the batch as JSON values: `judged`, the judgments' `to_dict()`, and `failed`."""
        return {
            "judged": [judgment.to_dict() for judgment in self.judgments],
            "failed": [asdict(failure) for failure in self.failures],
        }

    def __repr__(self) -> str:
        """Describe the batch in one line."""
        verdicts = sum(one.stop == "verdict" for one in self.judgments)
        left_open = sum(one.is_open for one in self.judgments)
        parts = [f"{len(self.rows)} rows", f"{verdicts} with a verdict"]
        parts += [f"{left_open} left open"] if left_open else []
        parts += [f"{len(self.failures)} failed"] if self.failures else []
        parts += [f"accuracy {self.accuracy}"] if self.accuracy else []
        return f"<BatchResult: {', '.join(parts)}>"


def most_frequent(failures: Sequence[Failure]) -> str:
    """Return the reason that most failures share, with their number if there are others."""
    (reason, count), *others = Counter(failure.reason for failure in failures).most_common()
    return f"{reason} ({count} of them)" if others else reason


async def judge_rows(
    engine: JudgeEngine, rows: Sequence[Mapping[str, Any]], plan: Plan, progress: Progress | None = None
) -> BatchResult:
    """Judge rows with an open engine; `plan.limit` is not used.

    A row that cannot be judged is a Failure and does not stop the others. After `plan.give_up_after`
    consecutive failures of the model or the sandbox, and once the cost limit is reached, the remaining rows
    fail without being tried. Raises NoRowJudged if there are rows and none of them could be judged.
    """
    result = await _Run(engine, plan, progress or (lambda done, total: None), len(rows)).all(rows)
    if result.failures and not result.judgments:
        raise NoRowJudged(result.failures)
    return result


@dataclass(slots=True)
class _Run:
    engine: JudgeEngine
    plan: Plan
    progress: Progress
    total: int
    _start: SlowStart = field(init=False)
    _failures: FailureCount = field(init=False)
    _done: int = 0
    _stopped: str = ""
    """The reason why no further row is tried; empty while rows are tried."""
    _results: dict[int, Judgment | Failure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._start, self._failures = SlowStart(self.plan.first), FailureCount(self.plan.give_up_after)

    async def all(self, rows: Sequence[Mapping[str, Any]]) -> BatchResult:
        async with aclosing(as_finished(self._works(rows), self.plan.concurrency)) as finished:
            async for _ in finished:
                self._done += 1
                self.progress(self._done, self.total)
        return BatchResult(tuple(self._results[index] for index in range(len(rows))))

    async def _works(self, rows: Sequence[Mapping[str, Any]]) -> AsyncGenerator[Coroutine[Any, Any, None]]:
        for index, row in enumerate(rows):
            await self._start.turn()
            yield self._one(index, row)

    async def _one(self, index: int, row: Mapping[str, Any]) -> None:
        try:
            self._results[index] = await self._judged(f"rows[{index}]", row)
        finally:
            self._start.finished()

    async def _judged(self, where: str, row: Mapping[str, Any]) -> Judgment | Failure:
        try:
            task = read_question(row, self.plan.columns, self.plan.labels)
        except RowError as error:
            return Failure(where, None, str(error))
        if self._stopped:
            return Failure(where, task.id, f"not tried: {self._stopped}")
        try:
            judgment = await self.engine.judge(
                truncated(task, self.plan.truncate), kind_of(task, self.plan.kind)
            )
        except CostReached as error:
            self._stopped = str(error)
            return Failure(where, task.id, str(error))
        except ValueError as error:
            return Failure(where, task.id, str(error))
        if judgment.stop.unscored:
            self._count(judgment)
            return Failure(where, task.id, f"{judgment.stop}: {judgment.detail}")
        self._failures.works()
        return judgment

    def _count(self, judgment: Judgment) -> None:
        try:
            if judgment.stop.down:
                self._failures.is_down(judgment.detail)
        except TooManyFailures as error:
            # A batch in memory keeps what it has, and its other rows fail with this reason.
            self._stopped = str(error)


class ProgressLine:
    """Shows the progress of a batch on standard error: a line that is rewritten, or one line now and then."""

    def __init__(self) -> None:
        self._interval = Interval()

    def __call__(self, done: int, total: int) -> None:
        text, last = printable(f"{done} of {total} rows judged"), done == total
        if sys.stderr.isatty():
            print(f"\r{text}", end="\n" if last else "", file=sys.stderr, flush=True)
        elif last or self._interval.over():
            print(text, file=sys.stderr, flush=True)
