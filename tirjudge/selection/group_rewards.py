"""Rewards for a group of completions of one prompt, from comparisons by a judge."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation.base import GeneratorFailed
from tirjudge.judging.empty_answers import with_content
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import truncated
from tirjudge.rollout import all_or_none
from tirjudge.rollout.callers import Turns
from tirjudge.selection.strengths import TIE, Comparison, Members
from tirjudge.selection.tournaments import Tournament, check_method, open_tournament
from tirjudge_environments import JudgeTask, StopReason, derive_seed
from tirjudge_environments.messages import whole_text
from tirjudge_environments.orders import Order
from tirjudge_sandbox import SandboxUnavailable

logger = logging.getLogger(__name__)

_MOST_KNOWN = 100_000
"""Answers that are kept; the oldest are dropped first."""


class GroupOptions(BaseModel):
    """The options of a group reward: the arguments of the reward functions, the fields of a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    method: str = "swiss"
    """`round-robin`, `knockout`, `pivot`, `swiss` or `listwise`."""
    both_orders: bool = False
    """Ask every question in both orders, at twice the calls; verdicts that differ are a tie."""
    budget: Annotated[int, Field(ge=1)] | None = None
    """Most judge calls for a group. Round robin and Swiss make as many whole rounds as fit into it; a
    budget within which the method cannot compare every member is an error."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of brackets, byes and pivots."""
    keep_guesses: bool = False
    """Pay a verdict that no program decided as any other, not as a tie: no program runs twice. Only a judge
    whose undecided verdicts are ties, such as the embedded one, has guesses."""


class GroupRewards(BaseModel):
    """The rewards of a group, and the calls behind them; also the answer of `/v1/group`."""

    model_config = ConfigDict(frozen=True)

    rewards: tuple[float | None, ...]
    """One per completion, in their order. None for a completion without any verdict."""
    method: str
    calls: int
    """Judge calls that the method needed: one per dialogue, so two per comparison in both orders."""
    cached: int
    """Calls that were answered from the cache, because the same texts were judged before."""
    comparisons: int
    """Questions to the judge: pairs, or 1 for `listwise`."""
    ties: int
    """Questions that ended as a tie."""
    no_verdict: int
    """Questions without a verdict; they have no influence on the rewards."""
    decided: int | None = None
    """Questions that programs decided; None if the judge's guesses are not known, or kept."""
    detail: str = ""
    """Says of a group that no program decided any of its comparisons; empty for other groups."""
    duplicates: int
    """Completions with the text of an earlier one, whose reward they share."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The parts of a judgment that rewards are computed from."""

    best: tuple[int, ...]
    scores: tuple[float | None, ...] | None
    decided: bool | None


@dataclass(slots=True)
class _Question:
    """A question that the judge is working on, and the number of groups that wait for it."""

    work: asyncio.Task[_Answer]
    waiting: int = 0


class GroupJudge:
    """Rewards for groups of completions, from an open judge; belongs to one event loop.

    The comparisons of a round run at the same time, and so do groups; over all of them at most
    `engine.options.concurrency` judgments run at once. A question (a prompt and the texts to compare, in
    whichever order) is asked once: later ones are answered from memory, and a question that is being asked is
    waited for.
    """

    def __init__(
        self,
        engine: JudgeEngine,
        truncate: int | None = None,
        on_judgment: Callable[[Judgment, float], None] | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`truncate` is the most characters of a completion that the judge sees.

        `on_judgment` is called with every judgment, failed ones included, and its seconds. `turns` are places
        for judgments that others share.
        """
        self._engine, self._truncate, self._on_judgment = engine, truncate, on_judgment
        self._turns = turns or Turns(engine.options.concurrency)
        self._known: dict[bytes, _Answer] = {}
        self._asked: dict[bytes, _Question] = {}
        self._warned = self._warned_of_guesses = False

    async def rewards(self, task: JudgeTask, options: GroupOptions) -> GroupRewards:
        """Return one reward for each candidate of the task.

        Equal texts are judged once and share a reward; if all are equal, there is nothing to compare, and
        every reward is 1/2. A member without any verdict gets None. Raises GeneratorFailed or
        SandboxUnavailable if the model or the sandbox fails, so that a failure is never a reward, and
        ValueError, in one line, for a group of one, an unknown method, a budget that is too small, and a
        judge format that cannot judge such a question.
        """
        if self._engine.options.ask_for_verdict:
            raise ValueError("rewards read verdicts strictly: open the judge without ask_for_verdict")
        order: Order | None = "both" if options.both_orders else None
        self._check(task, options, order)
        texts = tuple(dict.fromkeys(task.candidates))
        duplicates = len(task.candidates) - len(texts)
        if duplicates and not self._warned:
            self._warned = True
            logger.warning(
                "%d of %d completions of a group repeat another: each text is judged once, and equal texts "
                "share a reward (said once)",
                duplicates,
                len(task.candidates),
            )
        distinct = replace(task, candidates=texts)
        found = await self._judge_group(distinct, options, order)
        of_text = dict(zip(texts, found.rewards, strict=True))
        rewards = tuple(of_text[text] for text in task.candidates)
        guessed = found.decided == 0 and found.ties > 0
        detail = "no program decided any comparison: guesses pay as ties" if guessed else ""
        if detail and not self._warned_of_guesses:
            self._warned_of_guesses = True
            logger.warning("a group of %d: %s (said once)", len(task.candidates), detail)
        return found.model_copy(update={"rewards": rewards, "duplicates": duplicates, "detail": detail})

    def _check(self, task: JudgeTask, options: GroupOptions, order: Order | None) -> None:
        """Raise ValueError for a group that cannot be judged with these options, before any call."""
        size = len(task.candidates)
        if size < 2:
            raise ValueError(
                f"a group of {size} cannot be compared: give two completions of a prompt or more"
            )
        # Checked for the whole group, so that an error does not depend on which completions are equal.
        if options.method == "listwise":
            needed = self._dialogues(task, options, order)
        else:
            each = self._dialogues(replace(task, candidates=task.candidates[:2]), options, order)
            needed = open_tournament(options.method).least(size) * each
        if options.budget is not None and options.budget < needed:
            orders = " in both orders" if options.both_orders else ""
            raise ValueError(
                f"a budget of {options.budget} judge calls is too small: {options.method} needs {needed} to "
                f"compare all of {size} completions{orders}"
            )

    def _dialogues(self, task: JudgeTask, options: GroupOptions, order: Order | None) -> int:
        """Return the judge calls of one question; raises ValueError if the judge's format cannot take it."""
        check_method(options.method)
        try:
            return self._engine.dialogues(task, order=order)
        except ValueError as error:
            raise ValueError(f"{options.method} does not suit this judge: {error}") from None

    async def _judge_group(self, task: JudgeTask, options: GroupOptions, order: Order | None) -> GroupRewards:
        size = len(task.candidates)
        if size == 1:
            none: dict[str, Any] = {"calls": 0, "cached": 0, "comparisons": 0, "ties": 0, "no_verdict": 0}
            return GroupRewards(rewards=(TIE,), method=options.method, duplicates=0, **none)
        if options.method == "listwise":
            return await self._listwise(task, options, order)
        each = self._dialogues(replace(task, candidates=task.candidates[:2]), options, order)
        method = open_tournament(options.method)
        most = None
        if options.budget is not None:
            # A repeated completion may make an even group odd, in which everyone plays only after one more
            # round than the budget was checked for.
            most = max(options.budget // each, method.least(size))
        played, cached, decided = await self._play(method, task, most, options, order)
        return GroupRewards(
            rewards=method.rewards(size, played),
            method=options.method,
            calls=len(played) * each,
            cached=cached * each,
            comparisons=len(played),
            ties=sum(len(one.best) > 1 for one in played),
            no_verdict=sum(one.shares is None for one in played),
            decided=decided,
            duplicates=0,
        )

    async def _play(
        self,
        method: Tournament,
        task: JudgeTask,
        most: int | None,
        options: GroupOptions,
        order: Order | None,
    ) -> tuple[list[Comparison], int, int | None]:
        """Return the comparisons of all rounds, how many were known, and how many decided."""
        # Another bracket for every group, which is a function of its texts alone.
        drawn = derive_seed(options.seed, "group", repr(task.prompt), *map(whole_text, task.candidates))
        size, known = len(task.candidates), 0
        played: list[Comparison] = []
        decided: list[bool | None] = []
        while pairs := method.following(size, most, drawn, played):
            asked = [self._ask(task, pair, options, order) for pair in pairs]
            answers = await all_or_none(asked)
            played += [
                Comparison.won_by(pair, answer.best) for pair, (answer, _) in zip(pairs, answers, strict=True)
            ]
            known += sum(was_known for _, was_known in answers)
            decided += [answer.decided for answer, _ in answers]
        return played, known, _decided(decided)

    async def _listwise(self, task: JudgeTask, options: GroupOptions, order: Order | None) -> GroupRewards:
        """Ask once: the judge's scores if its format gives any, else 1 for the best and 0 for all others.

        A tie of all, and a guess, pay 1/2.
        """
        size = len(task.candidates)
        answer, was_known = await self._ask(task, tuple(range(size)), options, order)
        rewards: tuple[float | None, ...] = answer.scores or (None,) * size
        if answer.scores is None and answer.best:
            tied = len(answer.best) == size
            best = TIE if tied or answer.decided is False else 1.0
            rewards = tuple(best * (member in answer.best) for member in range(size))
        each = self._dialogues(task, options, order)
        return GroupRewards(
            rewards=rewards,
            method=options.method,
            calls=each,
            cached=each * was_known,
            comparisons=1,
            ties=int(len(answer.best) > 1),
            no_verdict=int(all(reward is None for reward in rewards)),
            decided=_decided([answer.decided]),
            duplicates=0,
        )

    async def _ask(
        self, task: JudgeTask, members: Members, options: GroupOptions, order: Order | None
    ) -> tuple[_Answer, bool]:
        """Return the judge's answer, by places in the group, and True if the question was asked before."""
        texts = [whole_text(response) for response in task.candidates]
        # One question for a set of texts, whichever way round a bracket puts them. The position that a text
        # is shown at does not depend on anything that can be read in it.
        shown = sorted(members, key=lambda member: (derive_seed("shown", texts[member]), texts[member]))
        candidates = tuple(task.candidates[member] for member in shown)
        asked = truncated(
            replace(task, id="", candidates=candidates),
            self._truncate,
            thinking=self._engine.options.judges_thinking,
        )
        named = f"{derive_seed(repr(asked.prompt), *map(whole_text, asked.candidates)):08x}"
        evidence = self._engine.tie_guesses and not options.keep_guesses
        answer, was_known = await self._answer(replace(asked, id=named), order, evidence)
        scores = answer.scores
        if scores is not None:
            by_member = dict(zip(shown, scores, strict=True))
            scores = tuple(by_member[member] for member in members)
        best = tuple(sorted(shown[place] for place in answer.best))
        return replace(answer, best=best, scores=scores), was_known

    async def _answer(self, task: JudgeTask, order: Order | None, evidence: bool) -> tuple[_Answer, bool]:
        text = repr(
            (task.prompt, task.domain, task.candidates, task.reference, task.criteria, order, evidence)
        )
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key in self._known:
            return self._known[key], True
        was_asked = key in self._asked
        if not was_asked:
            self._asked[key] = _Question(asyncio.create_task(self._judge(task, order, evidence)))
        question = self._asked[key]
        question.waiting += 1
        try:
            # Shielded, since another group may wait for the same answer.
            answer = await asyncio.shield(question.work)
        finally:
            question.waiting -= 1
            if not question.waiting:
                question.work.cancel()
                self._asked.pop(key, None)
        self._known[key] = answer
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return answer, was_asked

    async def _judge(self, task: JudgeTask, order: Order | None, evidence: bool) -> _Answer:
        async with self._turns.place():
            started = time.monotonic()
            # A program runs twice only where a guess pays otherwise than a verdict.
            judgment = await self._engine.judge(task, order=order, evidence=evidence)
        if self._on_judgment is not None:
            self._on_judgment(judgment, time.monotonic() - started)
        if judgment.stop is StopReason.SANDBOX_DOWN:
            raise SandboxUnavailable(judgment.detail or judgment.stop.value)
        if judgment.stop.down:
            raise GeneratorFailed(judgment.detail or judgment.stop.value)
        ran = any(one.calls for one in judgment.episode.trajectories)
        # The scores behind a guess are guessed as well.
        return _Answer(judgment.best, None if judgment.guess else _scores(judgment), judgment.decided and ran)


def _decided(questions: Sequence[bool | None]) -> int | None:
    """Return how many questions programs decided; None if that is known of none."""
    return None if all(one is None for one in questions) else sum(one is True for one in questions)


def _scores(judgment: Judgment) -> tuple[float | None, ...] | None:
    """Return one score per candidate; None if the format gives none, or the judge gave no verdict."""
    if judgment.stop is not StopReason.VERDICT or not judgment.scores:
        return None
    task, scores = judgment.episode.task, judgment.scores
    kept = with_content(task)
    return tuple(scores.get(one, None if one in kept else 0.0) for one in range(len(task.candidates)))
