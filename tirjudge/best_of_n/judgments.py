"""Judgments of candidates in a result file: a resumed run repeats none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tirjudge.best_of_n.base import CandidateSet, RefereeUnavailable
from tirjudge.judging.engine import JudgeEngine, Kind, kind_for
from tirjudge.judging.result_rows import result_row
from tirjudge.storage.result_file import ResultFile, digest


@dataclass(frozen=True, slots=True)
class _Kept:
    """The parts of a stored judgment that methods need."""

    digest: str
    """Hash of the task that was judged."""
    best: tuple[int, ...]
    """Positions among the candidates shown."""
    score: float | None


class Judgments:
    """The judgments of a result file, and a judge that adds missing ones; bound to one event loop.

    At most `engine.config.concurrency` judgments run at once.
    """

    def __init__(self, engine: JudgeEngine, results: ResultFile, *, texts: bool = True) -> None:
        """`texts` records the prompt and the candidates with every judgment."""
        self._engine, self._results, self._texts = engine, results, texts
        self._free = asyncio.Semaphore(engine.config.concurrency)
        self._kept = {row["id"]: _kept(row) for row in results.rows()}

    def of(self, question: CandidateSet, solved: Sequence[float] | None = None) -> QuestionReferee:
        """Return a referee for the candidates of one question.

        `solved` says which of them solve it, if that is known: judgments are recorded with their reward.
        """
        return QuestionReferee(question, self, solved)

    async def judge(
        self,
        question: CandidateSet,
        candidates: tuple[int, ...],
        kind: Kind | None,
        solved: Sequence[float] | None,
    ) -> _Kept:
        """Return the judgment of these candidates, from the file if it is there.

        Raises RefereeUnavailable, and ValueError for candidates that the format does not accept, and for a
        question that was judged with another prompt or other candidates.
        """
        task = replace(
            question.task,
            id=f"{question.task.id}#{'-'.join(map(str, candidates))}",
            candidates=tuple(question.task.candidates[index] for index in candidates),
        )
        task_digest, known = digest(task), self._kept.get(task.id)
        if known is not None:
            if known.digest != task_digest:
                raise ValueError(
                    "it was judged with another prompt or candidates; judge everything again with --overwrite"
                )
            return known
        async with self._free:
            loop = asyncio.get_running_loop()
            started = loop.time()
            # No prompt and no verdict depends on the label, and neither does the digest of older files.
            labelled = replace(task, label=_label(candidates, solved))
            result = await self._engine.judge(labelled, kind or kind_for(task))
        if result.stop.unscored:
            raise RefereeUnavailable(f"{result.stop}: {result.detail}", passing=result.stop.down)
        row = result_row(result, texts=self._texts, rewards=self._engine.rewards(result)) | {
            "question": question.task.id,
            "candidates": list(candidates),
            "best": list(result.best),
            "seconds": round(loop.time() - started, 3),
            "model": self._engine.model,
            "note": self._engine.note.note,
            "digest": task_digest,
        }
        self._results.append(row)
        self._kept[task.id] = _kept(row)
        return self._kept[task.id]


@dataclass(frozen=True, slots=True)
class QuestionReferee:
    """A referee for the candidates of one question."""

    question: CandidateSet
    judgments: Judgments
    solved: Sequence[float] | None = None

    async def score(self, candidate: int) -> float | None:
        kept = await self.judgments.judge(self.question, (candidate,), "pointwise", self.solved)
        return kept.score

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        shown = tuple(candidates)
        kept = await self.judgments.judge(self.question, shown, None, self.solved)
        return tuple(shown[place] for place in kept.best)


def _label(candidates: Sequence[int], solved: Sequence[float] | None) -> int | None:
    """Return the position of the one candidate that solves the question best; None without such a one."""
    if solved is None or len(candidates) < 2:
        return None
    shares = [solved[candidate] for candidate in candidates]
    return shares.index(max(shares)) if shares.count(max(shares)) == 1 else None


def _kept(row: Mapping[str, Any]) -> _Kept:
    scores = row["scores"]
    score = scores[0] if scores and len(scores) == 1 else None
    return _Kept(row["digest"], tuple(row["best"]), score)
