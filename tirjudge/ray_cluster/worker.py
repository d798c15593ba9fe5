"""The judge of one node: an engine with its own sandbox and endpoint, which Ray runs as an actor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from pydantic import SecretStr

from tirjudge.console_text import one_line
from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.endpoint.http import Retry
from tirjudge.generation.spending import Spending
from tirjudge.judging.batch import EngineRowJudge, Unjudged, Work
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judge_model import local_weights
from tirjudge.judging.options import JudgeOptions, endpoint_key
from tirjudge_environments import Usage
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_sandbox.prepared import prepared_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Everything that makes one worker judge as any other does."""

    options: JudgeOptions
    format: str
    """The format or kind of all rows; empty if each row's number of responses decides."""
    texts: bool = True
    api_key: SecretStr | None = None
    """The key of the run, for nodes whose environment has none."""
    weights: str = ""
    """See `local_weights`; a worker whose model has others is refused."""
    prepared: str = ""
    """See `prepared_digest`; empty without a prepared program."""
    version: str = field(default_factory=lambda: version("tirjudge"))
    folder: str = field(default_factory=os.getcwd)
    """The folder to which relative paths refer, if the node has it."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker that can judge."""

    model: str
    note: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason, in one line, why a node cannot judge."""

    reason: str
    passing: bool = False
    """True if it may judge later, because only its model or endpoint does not answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A judged row, or the reason why there is none, and what was used since the answer before it."""

    row: Mapping[str, Any] | None
    reason: str = ""
    down: str = ""
    """See `Unjudged`."""
    calls: tuple[tuple[Usage, float, float], ...] = ()
    """The tokens of each call of the model, its seconds, and those for which it waited for its turn."""
    cached: int = 0
    """Calls that the cache answered."""
    retries: tuple[Retry, ...] = ()


class _Calls(Spending):
    """A ledger that keeps its calls until they are sent to the run."""

    def __init__(self) -> None:
        super().__init__()
        self.unsent: list[tuple[Usage, float, float]] = []

    def add(self, usage: Usage, seconds: float, model: str = "", queued: float = 0.0) -> None:
        self.unsent.append((usage, seconds, queued))


class ClusterWorker:
    """Judges rows on a node. Ray calls the methods; coroutines run at the same time."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._calls, self._retries, self._hits = _Calls(), list[Retry](), 0
        self._stack = AsyncExitStack()
        if os.path.isdir(assignment.folder):
            os.chdir(assignment.folder)

    async def open(self) -> Ready | Refusal:
        """Open the engine and try model and sandbox once, so that a node that cannot judge gets no rows."""
        given, options = self._assignment, self._assignment.options
        installed = version("tirjudge")
        if installed != given.version:
            return Refusal(f"it has tirjudge {installed}, and this machine {given.version}: install the same")
        key = endpoint_key() or (given.api_key.get_secret_value() if given.api_key else None)
        try:
            weights = local_weights(options)
            if weights != given.weights:
                return Refusal("its model has other weights than that of this machine: copy the same there")
            if options.prepare and prepared_digest(options.prepare) != given.prepared:
                return Refusal(f"{options.prepare} differs from that of this machine: copy the same there")
            engine = JudgeEngine(
                options, spending=self._calls, weights=weights, api_key=key, on_retry=self._retries.append
            )
            await self._stack.enter_async_context(engine)
            if given.format:
                engine.rollout(given.format)
            await engine.check()
        except GeneratorFailed as error:
            return Refusal(one_line(error), passing=True)
        except (OSError, SandboxUnavailable, ValueError) as error:
            return Refusal(one_line(error))
        self._engine, self._rows = engine, EngineRowJudge(engine, texts=given.texts)
        return Ready(self._rows.model, self._rows.note)

    async def row(self, work: Work) -> Answer:
        """Judge a row."""
        try:
            row = await self._rows.row(work)
        except Unjudged as error:
            return Answer(None, str(error), error.down, *self._used())
        return Answer(row, "", "", *self._used())

    async def close(self) -> None:
        """End the sandbox and the model."""
        await self._stack.aclose()

    def _used(self) -> tuple[tuple[tuple[Usage, float, float], ...], int, tuple[Retry, ...]]:
        """Return the calls, cached calls and retries since the last answer."""
        calls, retries = tuple(self._calls.unsent), tuple(self._retries)
        self._calls.unsent.clear()
        self._retries.clear()
        cached, self._hits = self._engine.cached - self._hits, self._engine.cached
        return calls, cached, retries
