"""The base of the generators that run a model in this process: requests become rows of one batch."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tirjudge.console_text import first_line
from tirjudge.generation.base import BusyClock, GeneratorFailed, Sampling, SamplingOptions, context_ids
from tirjudge.generation.local.sampling import Noise, StopStrings, noise
from tirjudge_environments import Completion, Context, Finish, Usage
from tirjudge_environments.tokenization import ChatEncoder


@dataclass(slots=True, eq=False, kw_only=True)
class BatchRow:
    """The state of one request: its tokens, its sampling parameters and its position in the cache."""

    ids: list[int]
    """The context, then the sampled tokens."""
    start: int
    """Length of the context."""
    limit: int
    """Length of `ids` at which the row ends."""
    stops: StopStrings
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    noise: Noise | None = None
    """The uniform draw of every position; None for a greedy row."""
    resumes: bool = False
    """True if the context continues a dialogue, whose keys and values may be parked."""
    fed: int = 0
    """Tokens whose keys and values are in the row's slot of the cache."""
    logprobs: list[float] = field(default_factory=list)
    finish: Finish | None = None
    cancelled: bool = False
    submitted: float = field(default_factory=time.monotonic)
    began: float | None = None
    """The time of the row's first step; None while waiting."""

    @property
    def pending(self) -> int:
        """Known tokens to be fed before the last one, whose logits give the next token."""
        return len(self.ids) - 1 - self.fed

    @property
    def uniform(self) -> float:
        return 0.0 if self.noise is None else float(self.noise[len(self.ids)])

    def accept(self, token: int, logprob: float, ends: frozenset[int]) -> None:
        self.ids.append(token)
        self.logprobs.append(logprob)
        # The limit comes last, because the last token that fits may also end the turn or a stop string.
        if token in ends:
            self.finish = Finish.END
        elif self.stops.completed(self.ids, self.start):
            self.finish = Finish.STOP
        elif len(self.ids) >= self.limit:
            self.finish = Finish.LENGTH


class RowDecoder(ABC):
    """Decodes a batch that rows join and leave at any step.

    One thread calls `step`; another may call `submit` and set `BatchRow.cancelled`.
    """

    def __init__(self, ends: Iterable[int], max_rows: int) -> None:
        """`ends` are the tokens that end a turn; at most `max_rows` rows run at once."""
        self._ends = frozenset(ends)
        self._max_rows = max_rows
        # The one attribute that two threads use: append and popleft of a deque are atomic.
        self._submitted: deque[BatchRow] = deque()
        self._waiting: list[BatchRow] = []
        self._rows: list[BatchRow] = []
        """The rows that run."""
        self.tokens_fed = 0

    @property
    def busy(self) -> int:
        """Number of rows that wait or run."""
        return len(self._submitted) + len(self._waiting) + len(self._rows)

    def submit(self, row: BatchRow) -> None:
        self._submitted.append(row)

    def step(self) -> list[BatchRow]:
        """Admit waiting rows, feed tokens, and return the rows that ended or were cancelled."""
        ended = self._leave(lambda row: row.cancelled) + self._withdrawn()
        self._admit()
        if self._rows:
            for row in self._rows:
                row.began = row.began or time.monotonic()
            self._sample()
            ended += self._leave(lambda row: row.finish is not None)
        return ended

    def forget(self) -> None:
        """Drop every row and all keys and values."""
        self._submitted.clear()
        self._waiting.clear()
        self._rows.clear()

    def _withdrawn(self) -> list[BatchRow]:
        """Let submitted rows wait; return the rows that were cancelled while they waited."""
        while self._submitted:
            self._waiting.append(self._submitted.popleft())
        # Dialogues that have begun go first: behind all others, a row that waits for a program's output would
        # lose its parked keys and values to theirs.
        self._waiting.sort(key=lambda row: not row.resumes)
        cancelled = [row for row in self._waiting if row.cancelled]
        self._waiting = [row for row in self._waiting if not row.cancelled]
        return cancelled

    @abstractmethod
    def _admit(self) -> None:
        """Let waiting rows run, in order, as far as there is room."""

    @abstractmethod
    def _sample(self) -> None:
        """Feed tokens of running rows; a row without further known tokens takes its next one."""

    @abstractmethod
    def _leave(self, leaves: Callable[[BatchRow], bool]) -> list[BatchRow]:
        """Take running rows out of the batch and keep what may be resumed of them; return the rows."""


class BatchGenerator:
    """Completes contexts as rows of a decoder's batch, in a thread, so that programs run meanwhile."""

    def __init__(self, name: str, encoder: ChatEncoder, decoder: RowDecoder, max_context: int) -> None:
        """`max_context`: tokens of a context and its answer together."""
        self.model = name
        self.encoder = encoder
        self._decoder = decoder
        self._max_context = max_context
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tirjudge-generation")
        self._driver: asyncio.Task[None] | None = None
        self._futures: dict[BatchRow, asyncio.Future[None]] = {}
        self._stops: dict[tuple[str, ...], StopStrings] = {}
        self._clock = BusyClock()

    @property
    def busy_seconds(self) -> float:
        """Wall seconds since the start in which tokens were computed."""
        return self._clock.seconds

    @property
    def tokens_fed(self) -> int:
        """Tokens that went through the model since the start, without padding."""
        return self._decoder.tokens_fed

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        row = self._row(context, sampling)
        future = asyncio.get_running_loop().create_future()
        self._futures[row] = future
        self._decoder.submit(row)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.create_task(self._drive())
        try:
            # Only the driver settles a row: a cancelled caller waits until the row has left the batch.
            await asyncio.shield(future)
        except asyncio.CancelledError:
            row.cancelled = True
            await asyncio.gather(future, return_exceptions=True)
            raise
        ids, start = tuple(row.ids[row.start :]), row.start
        assert row.finish is not None
        return Completion(
            text=self.encoder.decode(ids),
            finish=row.finish,
            token_ids=ids,
            logprobs=tuple(row.logprobs),
            usage=Usage(prompt_tokens=start, completion_tokens=len(ids)),
            queued_seconds=(row.began or row.submitted) - row.submitted,
        )

    async def close(self) -> None:
        self._cancel_all()
        if self._driver is not None and not self._driver.done():
            await self._driver
        self._thread.shutdown()
        self._decoder.forget()

    def _row(self, context: Context, sampling: Sampling) -> BatchRow:
        ids = context_ids(context, self.model, self._max_context)
        start = len(ids)
        stop = context.prompt.stop
        if stop not in self._stops:
            self._stops[stop] = StopStrings(stop, self.encoder)
        limit = min(start + max(1, sampling.max_tokens), self._max_context)
        return BatchRow(
            ids=ids,
            start=start,
            limit=limit,
            stops=self._stops[stop],
            sampling=sampling,
            noise=noise(sampling.seed, limit) if sampling.temperature > 0 else None,
            resumes=bool(context.segments),
        )

    def _around_batch(self) -> AbstractContextManager[Any]:
        """Return what holds while rows run."""
        return nullcontext()

    def _around_steps(self) -> AbstractContextManager[Any]:
        """Return what holds during several steps, in their thread."""
        return nullcontext()

    async def _drive(self) -> None:
        """Step the batch until all rows end, and resolve the futures of ended rows.

        Cancelling `_drive` cancels every row.
        """
        loop = asyncio.get_running_loop()
        try:
            with self._around_batch():
                while self._decoder.busy:
                    try:
                        # Callers of ended rows submit their next turns, which go before waiting rows. The
                        # first pass of the event loop wakes `generate`, the second its caller.
                        for _ in range(2):
                            await asyncio.sleep(0)
                    except asyncio.CancelledError:
                        self._cancel_all()
                    steps = loop.run_in_executor(self._thread, self._advance)
                    try:
                        # The thread cannot be interrupted: its next step sees that rows are cancelled.
                        await asyncio.shield(steps)
                    except asyncio.CancelledError:
                        self._cancel_all()
                    for row in await steps:
                        self._settle(row)
        except Exception as error:
            self._fail(error)

    def _cancel_all(self) -> None:
        for row in self._futures:
            row.cancelled = True

    def _settle(self, row: BatchRow) -> None:
        future = self._futures.pop(row)
        if row.cancelled:
            future.cancel()
        else:
            future.set_result(None)

    def _advance(self) -> list[BatchRow]:
        """Step until at least one row ends, and return those rows."""
        with self._clock.working(), self._around_steps():
            ended: list[BatchRow] = []
            while self._decoder.busy and not ended:
                ended = self._decoder.step()
        return ended

    def _fail(self, error: Exception) -> None:
        """Fail every row after a forward pass that raised, for lack of memory or otherwise.

        Later requests start with an empty batch, and may succeed.
        """
        self._decoder.forget()
        futures, self._futures = self._futures, {}
        for future in futures.values():
            failure = GeneratorFailed(f"{self.model}: {first_line(error)}")
            failure.__cause__ = error
            if not future.done():  # a caller that was cancelled twice has cancelled it
                future.set_exception(failure)
