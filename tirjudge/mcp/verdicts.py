"""The tool `judge`: a verdict on one, two or more responses, for an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from pydantic import BaseModel, ConfigDict

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.spending import CostReached
from tirjudge.judge import Judge
from tirjudge.judging.config import MeteredConfig
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.views import JudgedCriterion, JudgedProgram, JudgedView
from tirjudge.serve.messages import CriterionRequest
from tirjudge_sandbox import SandboxUnavailable


class NoVerdict(RuntimeError):
    """There is no verdict: the model or the sandbox failed, or the question is invalid."""


class JudgeAnswer(BaseModel):
    """The answer of `judge`."""

    model_config = ConfigDict(frozen=True)

    verdict: str | None
    """Letter of the best response (the first of the question is A), `tie`, or None."""
    choice: int | None
    """Index of the best response, from 0; None for a tie or without a verdict."""
    scores: Mapping[int, float]
    """Index of a response to its score from 1 to 10, if they were scored; with criteria its aggregate from 0
    to 1."""
    stop: str
    """`verdict`, or the reason why there is none."""
    detail: str
    programs: tuple[JudgedProgram, ...]
    """The programs that the judge ran, each with the responses that its letters mean."""
    views: tuple[JudgedView, ...]
    """The judge's dialogues: the order in which each showed the responses, its verdict and its reasoning."""
    criteria: tuple[JudgedCriterion, ...]
    """The verdict on every criterion of the question."""

    @classmethod
    def of(cls, judgment: Judgment) -> Self:
        return cls(
            verdict=judgment.verdict,
            choice=judgment.choice,
            scores=dict(judgment.scores),
            stop=judgment.stop.value,
            detail=judgment.detail,
            programs=judgment.programs,
            views=judgment.views,
            criteria=judgment.criteria,
        )


class Verdicts:
    """An async context manager around a judge that opens at the first question."""

    def __init__(self, options: MeteredConfig) -> None:
        """Raises ValueError for options that contradict each other."""
        self._judge = Judge(**options.model_dump(exclude_unset=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._judge.close)

    async def judge(
        self,
        prompt: str,
        responses: Sequence[str],
        *,
        pointwise: bool = False,
        criteria: Sequence[str | CriterionRequest] = (),
        reference: str = "",
    ) -> JudgeAnswer:
        """Score one response, choose the best of several, or score each. Raises NoVerdict."""
        if not responses:
            raise NoVerdict("responses: at least one is needed")
        try:
            judgment = await self._judge.arank(
                prompt,
                responses,
                pointwise=pointwise,
                criteria=[one if isinstance(one, str) else one.model_dump() for one in criteria] or None,
                reference=reference,
            )
        except (CostReached, GeneratorFailed, SandboxUnavailable, ValueError) as error:
            raise NoVerdict(str(error)) from None
        if judgment.stop.unscored:
            raise NoVerdict(judgment.detail or judgment.stop.value)
        return JudgeAnswer.of(judgment)
