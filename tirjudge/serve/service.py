"""An open judge behind the routes: whole answers or none, and whether it is ready for more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tirjudge.generation.base import GeneratorFailed
from tirjudge.judging import Judging
from tirjudge.judgment import Judgment
from tirjudge.rollout import all_or_none
from tirjudge.serve.messages import Question
from tirjudge.serve.metrics import JudgeMetrics
from tirjudge_environments.tasks import RowError
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_sandbox.server.settings import FieldRefused


class Down(RuntimeError):
    """The model or the sandbox did not answer; the text is one line."""


class JudgeService:
    """Judges questions. Where the machinery fails for one of a request, there is no answer to any of it.

    So whoever overlooks a status never takes a failure for a verdict. What failed stays in `reason` until a
    question is judged or a check passes.
    """

    def __init__(self, judging: Judging, metrics: JudgeMetrics, check_seconds: float) -> None:
        self._judging, self._metrics, self._check_seconds = judging, metrics, check_seconds
        self._reason = "not asked yet"
        self._checking = asyncio.Lock()

    async def judge(self, questions: Sequence[Question], *way: str) -> list[Judgment]:
        """Raises Down, and FieldRefused for responses that do not fit; `way` leads to the questions."""
        several = len(questions) > 1
        works = [
            self._one(question, (*way, index) if several else way) for index, question in enumerate(questions)
        ]
        return await all_or_none(works)

    async def check(self) -> str:
        """Why no question can be judged now; empty if nothing is known to be wrong.

        After a failure, and at the start, the model is asked for one token and the sandbox for a program.
        """
        async with self._checking:
            if self._reason:
                try:
                    async with asyncio.timeout(self._check_seconds):
                        await self._judging.check()
                    self._reason = ""
                except TimeoutError:
                    self._reason = f"no answer within {self._check_seconds:g} s"
                except (GeneratorFailed, SandboxUnavailable) as error:
                    self._reason = str(error)
            return self._reason

    async def _one(self, question: Question, way: Sequence[str | int]) -> Judgment:
        started = time.monotonic()
        if question.kind and self._judging.config.format:
            raise FieldRefused(f"this server judges as {self._judging.config.format} alone", *way, "kind")
        try:
            judgment = await self._judging.judge(question.task(), question.kind)
        except RowError as error:
            raise FieldRefused(str(error), *way) from None
        except ValueError as error:
            raise FieldRefused(str(error), *way, "responses") from None
        self._metrics.judged(judgment, time.monotonic() - started)
        if judgment.stop.down:
            self._reason = judgment.detail or judgment.stop.value
            raise Down(f"{judgment.stop.value}: {judgment.detail}")
        self._reason = ""
        return judgment
