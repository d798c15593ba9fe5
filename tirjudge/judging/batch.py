"""The runner of a batch: rows are judged concurrently, and a sink gets the outcome of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from tirjudge.data.rows import BadRow, Row
from tirjudge.generation.spending import CostReached
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import Kind, kind_of, read_question, truncated
from tirjudge.rollout.concurrency import as_finished, read_in_thread
from tirjudge.storage.result_file import ResultFile, ResultStream, digest, label_facts, label_key
from tirjudge_environments import JudgeTask
from tirjudge_environments.files.placing import size_of
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError
from tirjudge_environments.tasks.columns import column_named

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


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
    thinking: bool = True
    """Judge the thinking at the start of responses too."""
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


class TooManyFailures(RuntimeError):
    """The model or the sandbox failed for too many consecutive rows."""


@dataclass(slots=True)
class SlowStart:
    """The start of a run: only `first` rows are judged until a row is finished."""

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
class Room:
    """The memory for the files of the rows that are judged at once."""

    most: int = 512 << 20
    """Bytes; a row that is alone may have more."""
    _held: int = 0
    _freed: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, size: int) -> None:
        """Wait until there is room for so many bytes."""
        while size and self._held and self._held + size > self.most:
            self._freed.clear()
            await self._freed.wait()
        self._held += size

    def free(self, size: int) -> None:
        """Give back what `take` took."""
        self._held -= size
        self._freed.set()


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
    numbered: bool = False
    """True if the row has no id of its own, so that it is named after its place."""

    @property
    def size(self) -> int:
        """Bytes of its files in memory."""
        return size_of((*self.task.files, self.task.prompt_files))


class Unjudged(Exception):
    """A row has no result; the text is the reason, in one line."""

    def __init__(self, reason: str, *, down: str = "", denied: bool = False) -> None:
        """`down` says what failed if the model or the sandbox did; it is empty if the row is the reason.

        `denied` is True if the endpoint refuses every request.
        """
        super().__init__(reason)
        self.down, self.denied = down, denied


class Sink(Protocol[T_contra]):
    """Receives the outcome of each row, in the order in which rows are finished."""

    def expects(self, work: Work, task: JudgeTask) -> bool:
        """Return False for a row that has a result; raises RowError for a row that may get no result.

        `task` is the row as read, before any text is cut.
        """

    def judged(self, work: Work, result: T_contra) -> None: ...

    def failed(self, failure: Failure) -> None: ...

    def stopped(self, work: Work, error: Exception) -> None:
        """Called for an error after which no further row is tried; raise it to cancel the running ones."""


@dataclass(slots=True)
class BatchRunner(Generic[T]):
    """A single pass over rows.

    `judge` raises Unjudged for a row without a result. CostReached, TooManyFailures and OSError, for example
    of a full disk, stop the run. Outcomes that the sink has received stay, whatever ends the run.
    """

    judge: Callable[[Work], Awaitable[T]]
    sink: Sink[T]
    plan: Plan = Plan()
    _start: SlowStart = field(init=False)
    _failures: FailureCount = field(init=False)
    room: Room = field(default_factory=Room)
    """The memory that files of the rows in work may take."""
    _read: int = 0
    _stopped: str = ""
    """The reason why no further row is tried; empty while rows are tried."""

    def __post_init__(self) -> None:
        self._start, self._failures = SlowStart(self.plan.first), FailureCount(self.plan.give_up_after)

    async def run(self, rows: Iterable[Row | BadRow]) -> int:
        """Judge the rows that the sink expects, and return the number of rows that were read.

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
        """Yield the judging of each row that the sink expects; report the rows that cannot be judged."""
        async for row in rows:
            # Archives are unpacked, and their contents hashed.
            read = (
                await asyncio.to_thread(self._read_row, row) if self._has_files(row) else self._read_row(row)
            )
            work = self._expected(read)
            if isinstance(work, Failure):
                self.sink.failed(work)
            elif work is not None:
                await self._start.turn()
                await self.room.take(work.size)
                yield self._one(work)
            del read, work
            self._read += 1
            if self._read == self.plan.limit:
                return

    def _has_files(self, row: Row | BadRow) -> bool:
        names = (self.plan.columns.files, self.plan.columns.prompt_files)
        fields = row.fields if isinstance(row, Row) and isinstance(row.fields, Mapping) else ()
        return any(column_named(fields, name.split(".")[0]) for name in names)

    def _read_row(self, row: Row | BadRow) -> tuple[Work, JudgeTask] | Failure:
        """Return the work for a row and its task before any text is cut, or why it cannot be judged."""
        if isinstance(row, BadRow):
            return Failure(row.where, None, row.reason)
        plan, id = self.plan, None
        try:
            task = read_question(
                row.fields, plan.columns, plan.labels, default_id=row.default_id, beside=row.beside
            )
            id = task.id
            shown = truncated(task, plan.truncate, thinking=plan.thinking)
            kind = kind_of(task, plan.kind)
            work = Work(
                row.where,
                shown,
                kind,
                cut=shown is not task,
                digest=digest(task),
                numbered=id == row.default_id,
            )
            return work, task
        except RowError as error:
            return Failure(row.where, id, str(error))

    def _expected(self, read: tuple[Work, JudgeTask] | Failure) -> Work | Failure | None:
        """Return what was read, or None for a row that has its result already."""
        if isinstance(read, Failure):
            return read
        work, task = read
        try:
            return work if self.sink.expects(work, task) else None
        except RowError as error:
            return Failure(work.where, work.task.id, str(error))

    async def _one(self, work: Work) -> None:
        try:
            await self._judge(work)
        except (CostReached, TooManyFailures, OSError) as error:
            # A sink that raises ends the run here, before any further row may start.
            self.sink.stopped(work, error)
            self._stopped = str(error)
        finally:
            self.room.free(work.size)
        self._start.finished()

    async def _judge(self, work: Work) -> None:
        if self._stopped:
            self.sink.failed(Failure(work.where, work.task.id, f"not tried: {self._stopped}"))
            return
        try:
            result = await self.judge(work)
        except Unjudged as error:
            self.sink.failed(Failure(work.where, work.task.id, str(error)))
            if error.down:
                self._failures.is_down(error.down, denied=error.denied)
            return
        self._failures.works()
        self.sink.judged(work, result)


class RowJudge(Protocol):
    """Judges rows, several at once."""

    model: str
    """The model's name for result rows."""
    note: str
    """One line about the model; may be empty."""

    @property
    def cached(self) -> int:
        """The calls of the model that a cache answered."""

    async def row(self, work: Work) -> Mapping[str, Any]:
        """Return the row of the result file; raises Unjudged."""


class EngineRowJudge:
    """Judges rows with an open engine of this process."""

    def __init__(self, engine: JudgeEngine, *, texts: bool = True) -> None:
        """`texts` records the prompt and the responses."""
        self._engine, self._texts = engine, texts
        self.model, self.note = engine.model, engine.note.note

    @property
    def cached(self) -> int:
        return self._engine.cached

    async def judgment(self, work: Work) -> Judgment:
        """Return the judgment of a row, with or without a verdict; raises Unjudged."""
        try:
            result = await self._engine.judge(work.task, work.kind)
        except ValueError as error:
            raise Unjudged(str(error)) from None
        if result.stop.unscored:
            down = result.detail or str(result.stop) if result.stop.down else ""
            raise Unjudged(f"{result.stop}: {result.detail}", down=down, denied=self._engine.denied)
        return result

    async def row(self, work: Work) -> Mapping[str, Any]:
        """Return the row of the result file; raises Unjudged."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        result = await self.judgment(work)
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


class Watcher(Protocol):
    """Callbacks that display a run's progress."""

    def judged(self, row: Mapping[str, Any]) -> None: ...

    def failed(self, failure: Failure) -> None: ...


@dataclass(slots=True)
class ResultSink:
    """Writes rows to a result file or to standard output. Any error that stops the run ends it at once."""

    results: ResultFile | ResultStream
    watcher: Watcher | None = None
    relabelled: dict[str, Work] = field(default_factory=dict)
    """Id to the row, for rows that were judged with another label."""
    _seen: dict[str, str] = field(default_factory=dict)
    """The location of each row of this run, by id."""
    _recorded_as: dict[str, list[str]] = field(default_factory=dict)
    """Digest to the ids of recorded rows, once a row was found that may have moved."""
    _found: set[str] = field(default_factory=set)
    """The ids of recorded rows that are rows of this run."""
    _moved: bool = False
    """True once a row without an id of its own was found under another one's id."""

    def expects(self, work: Work, task: JudgeTask) -> bool:
        id = work.task.id
        other = self._seen.get(id)
        if other is not None:
            raise RowError(f"its id {id!r} is already used by {other}")
        self._seen[id] = work.where
        recorded = self.results.digests.get(id)
        # Equal rows of an interrupted run may have been judged in any order: they have not moved.
        if recorded is None and not self._moved:
            return True
        if recorded is None or not self._is_recorded(id, work, task):
            if work.numbered and (elsewhere := self._moved_from(task)):
                id, self._moved = elsewhere, True
            elif recorded is None:
                return True
            else:
                reason = "it was judged with another prompt or responses: --overwrite judges every row again"
                raise RowError(f"{reason}; rows with ids may move" if work.numbered else reason)
        self._found.add(id)
        if self.results.labels[id] != label_key(label_facts(task)):
            self.relabelled[id] = work
        return False

    def _is_recorded(self, id: str, work: Work, task: JudgeTask) -> bool:
        # A digest is about the label too, which no judge saw: the row may have had another label then.
        label = json.loads(self.results.labels[id]).get("label")
        return self.results.digests[id] in (work.digest, digest(replace(task, label=label)))

    def _moved_from(self, task: JudgeTask) -> str:
        """Return the id under which a row without an id of its own was judged; empty if it was not."""
        if not self._recorded_as:
            for id, recorded in self.results.digests.items():
                self._recorded_as.setdefault(recorded, []).append(id)
        labels = (None, *range(len(task.candidates)))
        ids = (self._recorded_as.get(digest(replace(task, label=label)), ()) for label in labels)
        return next((id for some in ids for id in some if id not in self._found), "")

    def judged(self, work: Work, result: Mapping[str, Any]) -> None:
        if result.get("files") or result.get("prompt_files"):
            # Before the row, which refers to them.
            self.results.keep((*work.task.files, work.task.prompt_files))
        self.results.append(result)
        if self.watcher is not None:
            self.watcher.judged(result)

    def failed(self, failure: Failure) -> None:
        self.results.append_failure(asdict(failure))
        if self.watcher is not None:
            self.watcher.failed(failure)

    def stopped(self, work: Work, error: Exception) -> None:
        raise error
