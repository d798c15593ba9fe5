"""Rows sent to the workers of a Ray cluster: one worker per node, and every row is answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tirjudge.console_text import first_line
from tirjudge.generation.endpoint.http import Retry
from tirjudge.generation.spending import Spending
from tirjudge.judging.batch import TooManyFailures, Unjudged, Work
from tirjudge.ray_cluster.connection import Node, connect, nodes
from tirjudge.ray_cluster.worker import Answer, Assignment, ClusterWorker, Ready, Refusal

_DOWN_IN_ROW = 3
"""Consecutive rows for which a worker's model or sandbox was down, after which others get its rows."""
_MOST_LOST = 3
"""Workers that may be lost while they judge a row; more losses would be the row's doing."""
_MOST_STARTS = 3
"""Consecutive starts that may fail before a run without any other worker ends."""
_LOOK = 1.0
"""Seconds between two looks at the nodes of the cluster."""
_RESTART, _RETRY = 2.0, 60.0
"""Seconds until a lost worker is started again, and one whose model or sandbox was down."""
_JOINING = 2
"""Workers beyond those at the start of a run for which rows are kept ready."""
_CLOSING = 5.0
"""Seconds that the workers have to end their sandboxes and models."""


@dataclass(eq=False, slots=True)
class _Running:
    """A worker that judges rows."""

    actor: Any
    place: str
    """The name of its node."""
    in_flight: int = 0
    down_in_row: int = 0
    live: bool = True
    """False once it gets no further rows."""
    spared: bool = False
    """True if it was ended because its model or sandbox was down."""


@dataclass(eq=False, slots=True)
class _Seat:
    """The place of a worker: a node, or one of its GPUs."""

    node: Node
    endpoint: str
    worker: _Running | None = None
    starting: asyncio.Task[None] | None = None
    starting_since: float = 0.0
    """Seconds on the event loop's clock."""
    start_at: float = 0.0
    """The time of the event loop from which a worker may be started."""
    failed_starts: int = 0
    refusal: str = ""
    """The reason why the last start failed."""
    refused: bool = False
    """True if no start will succeed while this run lasts."""

    @property
    def hopeful(self) -> bool:
        """True if a worker may still be started here."""
        return not self.refused and self.failed_starts < _MOST_STARTS


@dataclass(eq=False)
class ClusterRowJudge:
    """A judge of rows whose rows are judged by the nodes of a Ray cluster; an async context manager.

    The run's own process reads the rows and writes the results, so a row has one result whatever happens to
    the nodes: a row of a lost worker is given to another one, and its seed depends only on its id and the
    run's seed. Opening raises ValueError if no cluster or no node can judge. Nodes that join later are used.
    """

    assignment: Assignment
    spending: Spending
    """The ledger of the calls of all workers."""
    say: Callable[[str], None]
    """Prints a line about a node."""
    on_retry: Callable[[Retry], None]
    address: str | None = None
    """See `connect`."""
    endpoints: Sequence[str] = ()
    """Base URLs that the workers use in turn; without any, all use that of the options."""
    gpus: int | None = None
    """GPUs that each worker reserves; None is one for a model in the worker's process, else none."""
    cached: int = 0
    """Calls that the caches of the nodes answered."""
    model: str = ""
    note: str = ""
    _ray: Any = None
    _seats: dict[tuple[str, int], _Seat] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._ray = connect(self.address)
        try:
            self._look(nodes(self._ray))
            if not self._seats:
                gpus = f" and {self.gpus} GPUs" if self.gpus else ""
                raise ValueError(f"--runner ray: the cluster has no node with a CPU{gpus}")
            async with self._changed:
                await self._changed.wait_for(lambda: self._live or not self._starting)
            refusals = {seat.node.name: seat.refusal for seat in self._seats.values() if seat.refusal}
            if not self._live:
                told = [*dict.fromkeys(refusals.values())]
                if len(told) > 1:
                    told = [f"{name}: {why}" for name, why in refusals.items()]
                raise ValueError(f"no node of the cluster can judge: {'; '.join(told)}")
            for name, refusal in refusals.items():
                self.say(f"node {name} judges no rows: {refusal}")
            self._watching = asyncio.create_task(self._watch())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._close()

    @property
    def concurrency(self) -> int:
        """Rows at once of each worker."""
        return self.assignment.options.concurrency

    @property
    def capacity(self) -> int:
        """Rows that should be in flight: what the workers judge at once, and what two more workers could."""
        # Rows without a worker wait here, and each of them is woken whenever another one is finished.
        return self.concurrency * (len(self._seats) + _JOINING)

    @property
    def size(self) -> str:
        """The number of nodes in words."""
        count = len({node for node, _ in self._seats})
        return f"{count} node{'' if count == 1 else 's'}"

    async def row(self, work: Work) -> Mapping[str, Any]:
        """Have a row judged by the worker with the fewest rows; raises Unjudged and TooManyFailures.

        If its model or sandbox is down, the row is given to each other worker in turn.
        """
        tried: set[_Running] = set()
        answer: Answer = Answer(None)
        lost = 0
        while worker := await self._free(tried):
            try:
                answer = await worker.actor.row.remote(work)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                lost += not worker.spared
                self._lose(worker, first_line(error))
                if lost == _MOST_LOST:
                    reason = f"{lost} workers were lost while they judged it"
                    raise Unjudged(reason, down=reason) from None
                continue
            finally:
                worker.in_flight -= 1
                await self._notify()
            for usage, seconds, queued in answer.calls:
                self.spending.add(usage, seconds, queued=queued)
            for retry in answer.retries:
                self.on_retry(retry)
            self.cached += answer.cached
            row = answer.row
            if row is not None:
                worker.down_in_row = 0
                return row
            if not answer.down:
                break
            tried.add(worker)
            worker.down_in_row += 1
            self._spare(worker, answer.down)
        raise Unjudged(answer.reason, down=answer.down)

    async def _free(self, tried: set[_Running]) -> _Running | None:
        """Wait for room at a worker that has not tried the row; None if all have, and no other one starts."""
        async with self._changed:
            while True:
                live = self._live
                if not live and not self._starting and not any(one.hopeful for one in self._seats.values()):
                    raise TooManyFailures("no worker of the cluster is left")
                fresh = [worker for worker in live if worker not in tried]
                if live and not fresh and not self._starting_soon():
                    return None
                worker = min(fresh, key=lambda one: one.in_flight, default=None)
                if worker is not None and worker.in_flight < self.concurrency:
                    worker.in_flight += 1
                    return worker
                await self._changed.wait()

    def _lose(self, worker: _Running, reason: str) -> None:
        """Note that a worker or its node does not answer any more."""
        if not worker.live:
            return
        self.say(f"node {worker.place}: its worker was lost ({reason}); the others judge its rows")
        self._retire(worker, _RESTART)

    def _spare(self, worker: _Running, reason: str) -> None:
        """Give no more rows to a worker whose model or sandbox is down, unless it is the last one."""
        if worker.live and worker.down_in_row >= _DOWN_IN_ROW and len(self._live) > 1:
            self.say(f"node {worker.place} gets no rows for {_RETRY:.0f} s: {reason}")
            worker.spared = True
            self._retire(worker, _RETRY)

    def _retire(self, worker: _Running, pause: float) -> None:
        worker.live = False
        for seat in self._seats.values():
            if seat.worker is worker:
                seat.worker, seat.start_at = None, asyncio.get_running_loop().time() + pause
        # A worker that cannot be reached may still be running; it must not use the model any longer.
        self._ray.kill(worker.actor)

    @property
    def _live(self) -> list[_Running]:
        workers = [seat.worker for seat in self._seats.values()]
        return [worker for worker in workers if worker is not None and worker.live]

    @property
    def _starting(self) -> bool:
        return any(seat.starting for seat in self._seats.values())

    def _starting_soon(self) -> bool:
        """Return True if a worker is starting, and not for so long that its node may never have room."""
        now = asyncio.get_running_loop().time()
        return any(seat.starting and now - seat.starting_since < _RETRY for seat in self._seats.values())

    async def _watch(self) -> None:
        """Start workers on nodes that join, and again where one was lost; forget nodes that left."""
        while True:
            await asyncio.sleep(_LOOK)
            self._look(await asyncio.to_thread(nodes, self._ray))
            await self._notify()

    def _look(self, found: Sequence[Node]) -> None:
        now = asyncio.get_running_loop().time()
        for node in found:
            for number in range(self._workers_of(node)):
                if (node.id, number) not in self._seats:
                    endpoints = self.endpoints
                    endpoint = endpoints[len(self._seats) % len(endpoints)] if endpoints else ""
                    self._seats[node.id, number] = _Seat(node, endpoint)
        present = {node.id for node in found}
        for key, seat in tuple(self._seats.items()):
            if key[0] not in present and seat.worker is None and seat.starting is None:
                # Its endpoint goes to the next node that joins only by chance; endpoints are alike.
                del self._seats[key]
            elif not (seat.worker or seat.starting or seat.refused) and now >= seat.start_at:
                seat.starting, seat.starting_since = asyncio.create_task(self._start(seat)), now

    def _workers_of(self, node: Node) -> int:
        gpus = self._gpus(node)
        return node.gpus // gpus if gpus else 1

    def _gpus(self, node: Node) -> int:
        if self.gpus is not None:
            return self.gpus
        return 0 if self.assignment.options.base_url else min(1, node.gpus)

    async def _start(self, seat: _Seat) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = self.assignment.options
        if seat.endpoint:
            options = options.model_copy(update={"base_url": seat.endpoint})
        actor = (
            self._ray.remote(ClusterWorker)
            .options(
                num_cpus=0,
                num_gpus=self._gpus(seat.node),
                max_concurrency=self.concurrency + 1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(seat.node.id, soft=False),
            )
            .remote(replace(self.assignment, options=options))
        )
        found: Ready | Refusal
        try:
            found = await actor.open.remote()
        except self._ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            found = Refusal(f"its worker did not start ({_line(cause)})", passing=True)
        first = not seat.failed_starts
        if isinstance(found, Ready):
            seat.worker = _Running(actor, seat.node.name)
            seat.failed_starts, seat.refusal = 0, ""
            self.model, self.note = self.model or found.model, self.note or found.note
        else:
            self._ray.kill(actor)
            seat.refused, seat.refusal = not found.passing, found.reason
            seat.failed_starts += 1
            seat.start_at = asyncio.get_running_loop().time() + (_RESTART if first else _RETRY)
            if first and self._watching is not None:
                self.say(f"node {seat.node.name} judges no rows: {found.reason}")
        seat.starting = None
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _close(self) -> None:
        tasks = [seat.starting for seat in self._seats.values() if seat.starting]
        tasks += [self._watching] if self._watching else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        closing = [asyncio.ensure_future(_ended(worker.actor)) for worker in self._live]
        if closing:
            await asyncio.wait(closing, timeout=_CLOSING)
        # Ends the workers as well, since they belong to this run.
        self._ray.shutdown()


async def _ended(actor: Any) -> None:
    with suppress(Exception):  # a worker that cannot be reached has nothing left to close
        await actor.close.remote()


def _line(error: BaseException) -> str:
    """Return the last line of an error, which for Ray's errors is that of the worker itself."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
