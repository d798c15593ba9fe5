"""Judges of single rows: a prepared row becomes a row of the result file, in this process or elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tirjudge.judging.judge_engine import JudgeEngine, Kind
from tirjudge_environments import JudgeTask


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

    def __init__(self, reason: str, *, down: str = "") -> None:
        """`down` says what failed if the model or the sandbox did; it is empty if the row is the reason."""
        super().__init__(reason)
        self.down = down


class RowJudge(Protocol):
    """Judges rows, several at once."""

    model: str
    """The model's name for result rows."""
    note: str
    """One line about the model; may be empty."""

    async def row(self, work: Work) -> Mapping[str, Any]:
        """Return the row of the result file; raises Unjudged."""
        ...


class EngineRows:
    """Judges rows with an open engine of this process."""

    def __init__(self, engine: JudgeEngine, *, texts: bool = True) -> None:
        """`texts` records the prompt and the responses."""
        self._engine, self._texts = engine, texts
        self.model, self.note = engine.model, engine.note.note

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
            raise Unjudged(f"{result.stop}: {result.detail}", down=down)
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
