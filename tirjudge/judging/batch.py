"""Batches: judge the rows of a file concurrently, record each as it finishes, and count the results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tirjudge.data.rows import BadRow, Row
from tirjudge.judging.judge_engine import Kind, kind_for
from tirjudge.judging.questions import truncated
from tirjudge.judging.row_judge import RowJudge, Unjudged, Work
from tirjudge.rollout.concurrency import as_finished, read_in_thread
from tirjudge.statistics import Proportion
from tirjudge.storage.result_file import ResultFile, ResultStream, digest
from tirjudge_environments import JudgeTask, StopReason
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task


@dataclass(frozen=True, slots=True)
class Failure:
    """A row without a result, and the reason; the next start of the same run retries it."""

    where: str
    id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The rules by which rows become tasks, and the limits of a run."""

    kind: Kind | None = None
    """The kind of every judgment; None decides by each row's number of responses."""
    columns: Columns = DEFAULT_COLUMNS
    labels: Mapping[str, str] | None = None
    truncate: int | None = None
    """Characters of a response; longer ones are cut in the middle, under a visible mark."""
    texts: bool = True
    """Record the prompt and the responses of every row."""
    limit: int | None = None
    """Judge only this many rows from the start."""
    concurrency: int = 32
    first: int = 2
    """Rows that are judged alone until one of them has a result, so that a run shows its first verdict, or a
    wrong key, before the model starts on `concurrency` rows."""
    give_up_after: int = 50
    """Abort after this many consecutive model or sandbox failures; 0 never aborts."""


class Watcher(Protocol):
    """Callbacks that display a run's progress."""

    def judged(self, row: Mapping[str, Any]) -> None: ...

    def failed(self, failure: Failure) -> None: ...

    def skipped(self) -> None:
        """Called for a row that an earlier run judged."""
        ...


class TooManyFailures(RuntimeError):
    """The model or the sandbox failed for too many consecutive rows."""


@dataclass(slots=True)
class SlowStart:
    """The start of a run, in which few rows are judged until one of them is finished."""

    first: int
    """Rows that are judged alone."""
    _started: int = 0
    _one_finished: asyncio.Event = field(default_factory=asyncio.Event)

    async def turn(self) -> None:
        """Wait until one more row may start."""
        if self._started >= self.first:
            await self._one_finished.wait()
        self._started += 1

    def finished(self) -> None:
        """Note that a row is finished, with or without a result."""
        self._one_finished.set()


@dataclass(slots=True)
class FailureCount:
    """The consecutive failures of the model or the sandbox, after which a run ends."""

    give_up_after: int
    """0 never ends the run."""
    _down: int = 0

    def works(self) -> None:
        """Note that a row was judged, so that model and sandbox work again."""
        self._down = 0

    def is_down(self, detail: str) -> None:
        """Note that the model or the sandbox failed for a row; raises TooManyFailures at the limit."""
        self._down += 1
        if self._down == self.give_up_after:
            raise TooManyFailures(
                f"gave up after {self._down} consecutive failures, the last one because: {detail}"
            )


@dataclass(slots=True)
class Batch:
    """A single pass over rows.

    Raises TooManyFailures. Recorded results stay, whatever ends the run.
    """

    judge: RowJudge
    results: ResultFile | ResultStream
    watcher: Watcher
    plan: Plan = Plan()
    _seen: dict[str, str] = field(default_factory=dict)
    """Id to the location of its row, in this run."""
    _start: SlowStart = field(init=False)
    _failures: FailureCount = field(init=False)
    _read: int = 0

    def __post_init__(self) -> None:
        self._start, self._failures = SlowStart(self.plan.first), FailureCount(self.plan.give_up_after)

    async def run(self, rows: Iterable[Row | BadRow]) -> int:
        """Judge the rows without a result, and return the number of rows that were read.

        Rows are read only as fast as they are judged.
        """
        async with (
            aclosing(read_in_thread(rows)) as arriving,
            aclosing(as_finished(self._works(arriving), self.plan.concurrency)) as finished,
        ):
            async for _ in finished:
                pass
        return self._read

    async def _works(self, rows: AsyncGenerator[Row | BadRow]) -> AsyncGenerator[Coroutine[Any, Any, None]]:
        """Yield the judging of each row that is not judged yet; report the other rows."""
        async for row in rows:
            work = self._prepare(row)
            if isinstance(work, Work):
                await self._start.turn()
                yield self._judge(work)
            elif isinstance(work, Failure):
                self._fail(work)
            else:
                self.watcher.skipped()
            self._read += 1
            if self._read == self.plan.limit:
                return

    def _prepare(self, row: Row | BadRow) -> Work | Failure | None:
        """Return the work for a row, why it cannot be judged, or None if an earlier run judged it."""
        if isinstance(row, BadRow):
            return Failure(row.where, None, row.reason)
        plan = self.plan
        try:
            task = read_task(row.fields, default_id=row.default_id, columns=plan.columns, labels=plan.labels)
            kind = kind_of(task, plan.kind)
        except RowError as error:
            return Failure(row.where, None, str(error))
        other = self._seen.get(task.id)
        if other is not None:
            return Failure(row.where, task.id, f"its id {task.id!r} is already used by {other}")
        self._seen[task.id] = row.where
        task_digest, recorded = digest(task), self.results.digests.get(task.id)
        if recorded is None:
            shown = truncated(task, plan.truncate)
            return Work(row.where, shown, kind, cut=shown is not task, digest=task_digest)
        if recorded != task_digest:
            reason = (
                "it was judged with another prompt, responses or label: --overwrite judges every row again"
            )
            return Failure(row.where, task.id, reason)
        return None

    async def _judge(self, work: Work) -> None:
        try:
            await self._record(work)
        finally:
            self._start.finished()

    async def _record(self, work: Work) -> None:
        try:
            row = await self.judge.row(work)
        except Unjudged as error:
            self._fail(Failure(work.where, work.task.id, str(error)))
            if error.down:
                self._failures.is_down(error.down)
            return
        self._failures.works()
        self.results.append(row)
        self.watcher.judged(row)

    def _fail(self, failure: Failure) -> None:
        self.results.append_failure(asdict(failure))
        self.watcher.failed(failure)


def kind_of(task: JudgeTask, kind: Kind | None) -> Kind:
    """Return the requested kind; raises RowError if the row has another number of responses."""
    count = len(task.candidates)
    if kind == "pairwise" and count != 2:
        raise RowError(f"a pair has 2 responses, this row has {count}")
    if kind == "listwise" and count < 3:
        raise RowError(f"a list has 3 responses or more, this row has {count}")
    return kind or kind_for(task)


@dataclass(slots=True)
class Tally:
    """Counts of result rows, and of rows that failed."""

    judged: int = 0
    """Rows with a line in the result file, with or without a verdict."""
    failed: int = 0
    """Rows without a line: unreadable, or the model or the sandbox was down."""
    verdicts: int = 0
    """Rows with a choice, a tie or a score."""
    ties: int = 0
    open: int = 0
    """Rows whose verdict was left open for its low confidence."""
    labelled: int = 0
    credit: float = 0.0
    """Sum over labelled rows: 1 for a right choice, a share for a tie, 0 for a wrong or missing verdict."""
    credit_squares: float = 0.0
    """Sum of the squares of these, for the interval of the accuracy."""
    programs: int = 0
    """Programs executed, not counting refused ones."""
    programs_failed: int = 0
    programs_refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stops: Counter[str] = field(default_factory=Counter)

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of a result file."""
        self.judged += 1
        self.stops[row["stop"]] += 1
        self.verdicts += row["stop"] == "verdict"
        self.ties += row["verdict"] == "tie"
        self.open += row["stop"] == StopReason.ABSTAINED
        if row["correct"] is not None:
            self.labelled += 1
            self.credit += row["correct"]
            self.credit_squares += row["correct"] ** 2
        self.programs += row["programs"]
        self.programs_failed += row["programs_failed"]
        self.programs_refused += row["programs_refused"]
        self.prompt_tokens += row["prompt_tokens"]
        self.completion_tokens += row["completion_tokens"]

    @property
    def accuracy(self) -> Proportion:
        """The mean credit of labelled rows, whose interval is that of the mean of row values."""
        return Proportion.of_sums(self.credit, self.credit_squares, self.labelled)
