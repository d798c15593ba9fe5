"""The tool `judge`: a verdict on one response, on two or on several, for an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from tirjudge.generation.base import GeneratorFailed
from tirjudge.judge import Judge
from tirjudge.judged_program import JudgedProgram, judged_programs
from tirjudge.judgment import Judgment
from tirjudge_sandbox import SandboxUnavailable


class NoVerdict(RuntimeError):
    """There can be none: the model or the sandbox is not to be had, or the question is none."""


class JudgeAnswer(BaseModel):
    """What `judge` answers."""

    model_config = ConfigDict(frozen=True)

    verdict: str | None
    """Letter of the best response (the first is A), `tie`, or None."""
    choice: int | None
    """The same as an index from 0; None for a tie or without a verdict."""
    scores: Mapping[int, float]
    """Index of a response to its score from 1 to 10, where they were scored."""
    stop: str
    """`verdict`, or why there is none."""
    detail: str
    programs: tuple[JudgedProgram, ...]
    """What the verdict rests on."""

    @classmethod
    def of(cls, judgment: Judgment) -> Self:
        return cls(
            verdict=judgment.verdict,
            choice=judgment.choice,
            scores=dict(judgment.scores),
            stop=judgment.stop.value,
            detail=judgment.detail,
            programs=judged_programs(judgment),
        )


class Verdicts:
    """A judge that is opened when the first question comes. An async context manager."""

    def __init__(self, model: str, base_url: str, **options: Any):
        """As for `Judge`. Raises ValueError for an option that cannot be."""
        self._judge = Judge(model, base_url, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._judge.close)

    async def judge(self, prompt: str, responses: Sequence[str], *, pointwise: bool = False) -> JudgeAnswer:
        """One response is scored, of more the best is named, or each is scored. Raises NoVerdict."""
        if not responses:
            raise NoVerdict("responses: at least one is needed")
        try:
            judgment = await self._judge.arank(prompt, responses, pointwise=pointwise)
        except (GeneratorFailed, SandboxUnavailable, ValueError) as error:
            raise NoVerdict(str(error)) from None
        if judgment.stop.unscored:
            raise NoVerdict(judgment.detail or judgment.stop.value)
        return JudgeAnswer.of(judgment)
