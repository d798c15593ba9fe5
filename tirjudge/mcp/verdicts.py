"""The tool `judge`: a verdict on one, two or more responses, for an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.spending import CostReached
from tirjudge.judge import Judge
from tirjudge.judging.options import JudgeOptions
from tirjudge.records.answers import JudgeAnswer
from tirjudge.serve.messages import CriterionRequest
from tirjudge_sandbox import SandboxUnavailable


class NoVerdict(RuntimeError):
    """There is no verdict: the model or the sandbox failed, or the question is invalid."""


class Verdicts:
    """An async context manager around a judge that opens at the first question."""

    def __init__(self, options: JudgeOptions) -> None:
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
        return judgment.answer()
