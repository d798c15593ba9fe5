"""A file of rows judged: many at once, each recorded as it finishes, none twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from tirjudge.data.rows import BadRow, Row
from tirjudge.judging import Judging, Kind, kind_for
from tirjudge.judgment import result_row
from tirjudge.rollout.concurrency import as_finished, read_in_thread
from tirjudge.storage.result_file import IdIndex, ResultFile, digest
from tirjudge_environments import JudgeTask
from tirjudge_environments.outputs import cut_middle
from tirjudge_environments.tasks import DEFAULT_COLUMNS, Columns, RowError, read_task


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that left no result, and why; the same run started again tries it anew."""

    where: str
    id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How rows become tasks, and how many are judged at a time."""

    kind: Kind | None = None
    """None: by each row's number of responses."""
    columns: Columns = DEFAULT_COLUMNS
    labels: Mapping[str, str] | None = None
    truncate: int | None = None
    """Characters of a response, beyond which its middle is cut out under a visible mark."""
    limit: int | None = None
    """Only the first so many rows."""
    concurrency: int = 32
    give_up_after: int = 50
    """Stop once so many rows in a row failed because the model or the sandbox was down; 0 never does."""


class Watcher(Protocol):
    """Whoever shows how a run is going."""

    def judged(self, row: Mapping[str, Any]) -> None: ...

    def failed(self, failure: Failure) -> None: ...

    def skipped(self) -> None:
        """A row that an earlier run judged."""
        ...


class GivenUp(RuntimeError):
    """The model or the sandbox was down for too many rows in a row."""


@dataclass(frozen=True, slots=True)
class _Work:
    where: str
    task: JudgeTask
    kind: Kind
    cut: bool
    """Whether a response was shortened."""
    digest: str


@dataclass(slots=True)
class Batch:
    """One run over rows, once. Raises GivenUp; what is recorded stays recorded, whatever ends it."""

    judging: Judging
    results: ResultFile
    watcher: Watcher
    plan: Plan = Plan()
    _seen: IdIndex = field(default_factory=IdIndex)
    """Id to the place of the row that holds it, in this run."""
    _down: int = 0
    """Rows in a row that failed because a part was down."""

    async def run(self, rows: Iterable[Row | BadRow]) -> None:
        """Judge what is not judged yet; rows are read as room is made."""
        try:
            async with (
                aclosing(read_in_thread(rows)) as arriving,
                aclosing(as_finished(self._works(arriving), self.plan.concurrency)) as finished,
            ):
                async for _ in finished:
                    pass
        finally:
            self._seen.close()

    async def _works(self, rows: AsyncGenerator[Row | BadRow]) -> AsyncGenerator[Coroutine[Any, Any, None]]:
        """Yield the judging of each row that is not judged yet; report the other rows."""
        read = 0
        async for row in rows:
            work = self._prepare(row)
            if isinstance(work, _Work):
                yield self._judge(work)
            elif isinstance(work, Failure):
                self._fail(work)
            else:
                self.watcher.skipped()
            read += 1
            if read == self.plan.limit:
                return

    def _prepare(self, row: Row | BadRow) -> _Work | Failure | None:
        """What there is to judge, or why it cannot be; None for a row that an earlier run judged."""
        if isinstance(row, BadRow):
            return Failure(row.where, None, row.reason)
        plan = self.plan
        try:
            task = read_task(row.fields, default_id=row.default_id, columns=plan.columns, labels=plan.labels)
            kind = _kind(task, plan.kind)
        except RowError as error:
            return Failure(row.where, None, str(error))
        twin = self._seen.get(task.id)
        if twin is not None:
            return Failure(row.where, task.id, f"its id {task.id!r} is that of {twin} too")
        self._seen[task.id] = row.where
        asked, done = digest(task), self.results.digests.get(task.id)
        if done is None:
            shown = _cut(task, plan.truncate)
            return _Work(row.where, shown, kind, cut=shown is not task, digest=asked)
        if done != asked:
            reason = "it was judged with another prompt, responses or label: --overwrite to judge all anew"
            return Failure(row.where, task.id, reason)
        return None

    async def _judge(self, work: _Work) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            result = await self.judging.judge(work.task, work.kind)
        except ValueError as error:
            self._fail(Failure(work.where, work.task.id, str(error)))
            return
        if result.stop.unscored:
            self._fail(Failure(work.where, work.task.id, f"{result.stop}: {result.detail}"))
            if result.stop.down:
                self._count_down(result.detail)
            return
        self._down = 0
        row = result_row(result) | {
            "seconds": round(loop.time() - started, 3),
            "model": self.judging.model,
            "note": self.judging.note.note,
            "where": work.where,
            "cut": work.cut,
            "digest": work.digest,
        }
        self.results.append(row)
        self.watcher.judged(row)

    def _count_down(self, detail: str) -> None:
        self._down += 1
        if self._down == self.plan.give_up_after:
            raise GivenUp(f"given up after {self._down} failed rows in a row, the last one because: {detail}")

    def _fail(self, failure: Failure) -> None:
        self.results.append_failure(asdict(failure))
        self.watcher.failed(failure)


def _kind(task: JudgeTask, kind: Kind | None) -> Kind:
    """The kind that was asked for, if the row has the responses for it."""
    count = len(task.candidates)
    if kind == "pairwise" and count != 2:
        raise RowError(f"a pair has 2 responses, this row has {count}")
    if kind == "listwise" and count < 3:
        raise RowError(f"a list has 3 responses or more, this row has {count}")
    return kind or kind_for(task)


def _cut(task: JudgeTask, limit: int | None) -> JudgeTask:
    """The task itself if nothing is too long."""
    if limit is None or all(len(text) <= limit for text in task.candidates):
        return task
    return replace(task, candidates=tuple(cut_middle(text, limit) for text in task.candidates))
