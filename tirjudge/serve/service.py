"""The service of the judge server: questions to judgments, readiness, settings and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import FiniteFloat, PositiveFloat

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.spending import CostReached
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import truncated
from tirjudge.rollout import all_or_none
from tirjudge.rollout.callers import Turns
from tirjudge.selection.arriving_groups import ArrivingGroups
from tirjudge.selection.group_rewards import GroupJudge, GroupRewards
from tirjudge.serve.messages import MOST_CHARACTERS, ChatMessage, GroupRequest, JudgeRequest, MemberRequest
from tirjudge_environments.tasks import RowError
from tirjudge_environments.types import FrozenModel
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_sandbox.server.guard import CALLER, OWNER, Access
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.metrics import SECONDS, RequestMetrics
from tirjudge_sandbox.server.settings import FieldRefused
from tirjudge_sandbox.workers.fair_queue import Pace

_Said = str | Sequence[ChatMessage]
_FEW_COMPLETIONS = 8
_FEW_CHARACTERS = 10_000
"""Characters up to which a question is read at once."""

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Routes that need no token."""


class JudgeServerSettings(FrozenModel):
    """The limits of a judge server, and its reward for a response without a verdict."""

    access: Access = Access(open_paths=OPEN_PATHS)
    intake: IntakeLimits = IntakeLimits()
    no_verdict_reward: FiniteFloat | None = None
    """The reward of a response without a score; None: the request fails."""
    check_seconds: PositiveFloat = 10.0
    """Seconds within which the model and the sandbox must answer for `/readyz`."""


class JudgeMetrics(RequestMetrics):
    """Prometheus metrics: requests by status; judgments by stop, with their time, programs and tokens."""

    def __init__(self, paths: frozenset[str]):
        """`paths`: see `RequestMetrics`."""
        from prometheus_client import Counter, Histogram

        super().__init__(paths)
        self._judgments = Counter(
            "tirjudge_judgments", "Judgments, by format and stop.", ("format", "stop"), registry=self.registry
        )
        self._programs, self._read, self._written = (
            Counter(name, text, registry=self.registry)
            for name, text in (
                ("tirjudge_judge_programs", "Programs that the judge requested."),
                ("tirjudge_prompt_tokens", "Prompt tokens, as the model counts them."),
                ("tirjudge_completion_tokens", "Completion tokens, as the model counts them."),
            )
        )
        self._seconds = Histogram(
            "tirjudge_judgment_seconds", "Seconds until a judgment.", buckets=SECONDS, registry=self.registry
        )

    def judged(self, judgment: Judgment, seconds: float) -> None:
        """Count a judgment, with or without a verdict."""
        self._judgments.labels(judgment.kind, judgment.stop.value).inc()
        self._programs.inc(sum(len(one.calls) for one in judgment.trajectories))
        self._read.inc(judgment.usage.prompt_tokens)
        self._written.inc(judgment.usage.completion_tokens)
        self._seconds.observe(seconds)


class Down(RuntimeError):
    """The model or the sandbox did not answer, or the cost limit is reached; the text is one line."""


@dataclass(frozen=True, slots=True)
class _Groups:
    """The groups of one owner."""

    judge: GroupJudge
    """Remembers the comparisons that were made."""
    arriving: ArrivingGroups


class JudgeService:
    """Judges questions; if the model or the sandbox fails for one of a request, the whole request fails.

    A caller that ignores statuses can therefore not mistake a failure for a verdict. The last failure stays
    the reason of `check` until a question is judged or a check passes.
    """

    def __init__(
        self, engine: JudgeEngine, metrics: JudgeMetrics, check_seconds: float, truncate: int | None = None
    ) -> None:
        """`check_seconds` limits `check`; `truncate` is the most characters of a response."""
        self._engine, self._metrics = engine, metrics
        self._check_seconds, self._truncate = check_seconds, truncate
        self._reason = "not checked yet"
        self._checking = asyncio.Lock()
        self._owned: dict[str, _Groups] = {}
        """What is stored, by `OWNER`."""
        places = engine.options.concurrency
        self._turns = Turns(places, further=-(-places // 4))
        self._reading = Pace()

    async def judge(
        self, questions: Sequence[JudgeRequest], *way: str, field: str = "responses"
    ) -> list[Judgment]:
        """Judge the questions of the list at `way`; see `judge_one`."""
        return await all_or_none(
            self.judge_one(question, *way, index, field=field) for index, question in enumerate(questions)
        )

    async def reward_group(self, asked: GroupRequest) -> GroupRewards:
        """Judge a group; raises Down, and FieldRefused for a group that cannot be judged."""
        try:
            # The judge sees no more than two completions at once, except by the method `listwise`.
            shown = None if asked.options.method == "listwise" else 2
            longest = sorted(asked.completions, key=_length, reverse=True)[:shown]
            size = _size(asked, longest, ["completions"])
            # All pairs of a round are put into questions at once.
            await self._read(_FEW_CHARACTERS + 1 if len(asked.completions) > _FEW_COMPLETIONS else size)
            found = await self._groups.judge.rewards(asked.task(), asked.options)
        except RowError as error:
            # The other fields were checked when the request was read.
            raise FieldRefused(str(error), "prompt" if asked.criteria is None else "criteria") from None
        except ValueError as error:
            raise FieldRefused(str(error), "completions") from None
        except (CostReached, GeneratorFailed, SandboxUnavailable) as error:
            self._reason = str(error)
            raise Down(self._reason) from None
        self._reason = ""
        return found

    async def reward_member(self, asked: MemberRequest) -> tuple[GroupRewards, int]:
        """Return the rewards of the member's group, once it is complete, and the member's place in it.

        Raises MembersMissing, and as `reward_group` does.
        """
        return await self._groups.arriving.join(
            asked.key,
            asked.member,
            asked.completion,
            size=asked.size,
            seconds=asked.wait_seconds,
            judge=lambda completions: self.reward_group(asked.whole(completions)),
        )

    @property
    def _groups(self) -> _Groups:
        owner = OWNER.get()
        if owner not in self._owned:
            judge = GroupJudge(self._engine, self._truncate, self._metrics.judged, self._turns)
            self._owned[owner] = _Groups(judge, ArrivingGroups())
        return self._owned[owner]

    async def check(self) -> str:
        """Return why no question can be judged now; empty if nothing is known to be wrong.

        After a failure, and at the start, the model is asked for one token and the sandbox for a program.
        """
        async with self._checking:
            if self._reason:
                try:
                    async with asyncio.timeout(self._check_seconds):
                        await self._engine.check()
                    self._reason = ""
                except TimeoutError:
                    self._reason = f"no answer within {self._check_seconds:g} s"
                except (CostReached, GeneratorFailed, SandboxUnavailable) as error:
                    self._reason = str(error)
            return self._reason

    async def _read(self, size: int) -> None:
        """Wait until a question of so many characters may be read: a long one holds up all others."""
        if size > _FEW_CHARACTERS:
            await self._reading.start(CALLER.get())

    async def judge_one(self, question: JudgeRequest, *way: str | int, field: str = "responses") -> Judgment:
        """Judge a question; raises Down, and FieldRefused for an unfit one.

        `way` is where the request has the question, and `field` where this has the responses, if not itself.
        """
        responses = (*way, field) if field else way
        started = time.monotonic()
        if question.kind and self._engine.options.format:
            raise FieldRefused(f"this server judges only as {self._engine.options.format}", *way, "kind")
        size = _size(question, question.responses, responses)
        try:
            async with self._turns.place():
                await self._read(size)
                task = truncated(
                    question.task(), self._truncate, thinking=self._engine.options.judges_thinking
                )
                judgment = await self._engine.judge(task, question.kind)
        except RowError as error:
            raise FieldRefused(str(error), *way) from None
        except ValueError as error:
            raise FieldRefused(str(error), *responses) from None
        except CostReached as error:
            self._reason = str(error)
            raise Down(self._reason) from None
        self._metrics.judged(judgment, time.monotonic() - started)
        if judgment.stop.down:
            self._reason = judgment.detail or judgment.stop.value
            raise Down(f"{judgment.stop.value}: {judgment.detail}")
        self._reason = ""
        return judgment


def _size(question: JudgeRequest | GroupRequest, texts: Sequence[_Said], way: Sequence[str | int]) -> int:
    """Return the characters of a question with these texts; raises FieldRefused for too many."""
    size = sum(map(_length, (question.prompt, question.reference or "", *texts)))
    if size > MOST_CHARACTERS:
        text = f"make a question of {size} characters, at most {MOST_CHARACTERS} are accepted"
        raise FieldRefused(text, *way)
    return size


def _length(said: _Said) -> int:
    """Return the characters of a text, or of the contents and calls of messages."""
    if isinstance(said, str):
        return len(said)
    return sum(len(one.content) + len(str(one.tool_calls or "")) for one in said)
