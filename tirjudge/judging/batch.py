"""Batches: rows of a file or of a program, judged concurrently, recorded as they finish, and counted."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, overload

from tirjudge.console_text import Interval, printable
from tirjudge.data.rows import BadRow, Row
from tirjudge.generation.spending import CostReached
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import Kind, kind_of, read_question, truncated
from tirjudge.records.answers import JudgedProgram
from tirjudge.rollout.concurrency import as_finished, read_in_thread
from tirjudge.statistics import Credits, Proportion
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
    """Rows that are judged alone until one row has a result, so that a run shows its first verdict, or a
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
    """The start of a run, in which few rows are judged until one row is finished."""

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

    def is_down(self, detail: str, *, denied: bool = False) -> None:
        """Note that the model or the sandbox failed for a row; raises TooManyFailures at the limit.

        The limit is one failure if the endpoint was `denied`: if it refuses every request.
        """
        if denied:
            raise TooManyFailures(f"the endpoint refuses every request: {detail}")
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
        # An error ends the run, before any further row may start.
        await self._record(work)
        self._start.finished()

    async def _record(self, work: Work) -> None:
        try:
            row = await self.judge.row(work)
        except Unjudged as error:
            self._fail(Failure(work.where, work.task.id, str(error)))
            if error.down:
                self._failures.is_down(error.down, denied=error.denied)
            return
        self._failures.works()
        self.results.append(row)
        self.watcher.judged(row)

    def _fail(self, failure: Failure) -> None:
        self.results.append_failure(asdict(failure))
        self.watcher.failed(failure)


@dataclass(slots=True)
class JurorTally:
    """Counts of the rows that one model of a jury judged."""

    rows: int = 0
    deciding: int = 0
    """Rows whose verdict is this model's."""
    without: int = 0
    """Rows on which it gave no verdict."""
    credits: Credits = field(default_factory=Credits)

    def add(self, verdict: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Count the verdict of the model in a row of a result file."""
        self.rows += 1
        self.deciding += verdict["stop"] == "verdict" and verdict["verdict"] == row["verdict"]
        self.without += verdict["stop"] != "verdict"
        if verdict["correct"] is not None:
            self.credits.add(verdict["correct"], _cluster(row))


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
    credits: Credits = field(default_factory=Credits)
    """The `verdict_credit` of each labelled row; rows with the same prompt are a cluster."""
    sources: int = 0
    """Rows that name the sources of their responses."""
    programs: int = 0
    """Programs executed, not counting refused ones."""
    programs_failed: int = 0
    programs_refused: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stops: Counter[str] = field(default_factory=Counter)
    jury: dict[str, JurorTally] = field(default_factory=dict)
    """The models of a jury, in the order in which they are asked."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row of a result file."""
        self.judged += 1
        self.stops[row["stop"]] += 1
        self.verdicts += row["stop"] == "verdict"
        self.ties += row["verdict"] == "tie"
        self.open += row["stop"] == StopReason.ABSTAINED
        if row["correct"] is not None:
            self.credits.add(row["correct"], _cluster(row))
        for verdict in row.get("jury", ()):
            self.jury.setdefault(verdict["model"], JurorTally()).add(verdict, row)
        self.sources += bool(row.get("sources"))
        self.programs += row["programs"]
        self.programs_failed += row["programs_failed"]
        self.programs_refused += row["programs_refused"]
        self.prompt_tokens += row["prompt_tokens"]
        self.completion_tokens += row["completion_tokens"]

    @property
    def accuracy(self) -> Proportion:
        """The mean credit of labelled rows: the accuracy under the protocol `verdict`."""
        return self.credits.mean

    @property
    def labelled(self) -> int:
        return len(self.credits)


def _cluster(row: Mapping[str, Any]) -> str:
    """Return what rows that depend on each other share: the prompt."""
    return json.dumps(row["prompt"]) if row.get("prompt") else ""


@dataclass(frozen=True, slots=True)
class Work:
    """A row that is ready to be judged."""

    where: str
    """Its file and line, as messages name it."""
    task: JudgeTask
    kind: Kind
    cut: bool
    """True if a response was shortened."""
    digest: str


class Unjudged(Exception):
    """A row has no result; the text is the reason, in one line."""

    def __init__(self, reason: str, *, down: str = "", denied: bool = False) -> None:
        """`down` says what failed if the model or the sandbox did; it is empty if the row is the reason.

        `denied` is True if the endpoint refuses every request.
        """
        super().__init__(reason)
        self.down, self.denied = down, denied


class RowJudge(Protocol):
    """Judges rows, several at once."""

    model: str
    """The model's name for result rows."""
    note: str
    """One line about the model; may be empty."""

    @property
    def cached(self) -> int:
        """The calls of the model that a cache answered."""
        ...

    async def row(self, work: Work) -> Mapping[str, Any]:
        """Return the row of the result file; raises Unjudged."""
        ...


class EngineRows:
    """Judges rows with an open engine of this process."""

    def __init__(self, engine: JudgeEngine, *, texts: bool = True) -> None:
        """`texts` records the prompt and the responses."""
        self._engine, self._texts = engine, texts
        self.model, self.note = engine.model, engine.note.note

    @property
    def cached(self) -> int:
        return self._engine.cached

    async def row(self, work: Work) -> Mapping[str, Any]:
        """Return the row of the result file; raises Unjudged."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            result = await self._engine.judge(work.task, work.kind)
        except ValueError as error:
            raise Unjudged(str(error)) from None
        if result.stop.unscored:
            down = result.detail or str(result.stop) if result.stop.down else ""
            raise Unjudged(f"{result.stop}: {result.detail}", down=down, denied=self._engine.denied)
        rewards = self._engine.rewards(result)
        facts = {
            "seconds": round(loop.time() - started, 3),
            "model": self.model,
            "note": self.note,
            "where": work.where,
            "cut": work.cut,
            "digest": work.digest,
        }
        return result.row(texts=self._texts, rewards=rewards).model_copy(update=facts).to_json()


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
        """The rows that could not be judged, each with the reason."""
        return tuple(row for row in self.rows if isinstance(row, Failure))

    @property
    def programs(self) -> tuple[JudgedProgram, ...]:
        """The programs of all judgments, in the order of the rows."""
        return tuple(program for judgment in self.judgments for program in judgment.programs)

    @property
    def accuracy(self) -> Proportion | None:
        """The accuracy of labelled rows under the protocol `verdict`; None without labels."""
        credits = Credits()
        for one in self.judgments:
            if one.credit is not None:
                credits.add(one.credit, repr(one.episode.task.prompt))
        return credits.mean if credits else None

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
    consecutive failures of the model or the sandbox, and once the cost limit is reached or the cache cannot
    be used, the remaining rows fail without being tried. Raises NoRowJudged if there are rows and no row
    could be judged.
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
        except (CostReached, OSError) as error:  # the second for a cache that cannot be read or written
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
                self._failures.is_down(judgment.detail, denied=self.engine.denied)
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
