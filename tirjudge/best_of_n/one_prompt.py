"""Best-of-N of one prompt from Python, with a `Judge`."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from tirjudge.best_of_n.base import CandidateSet, Grade, RefereeUnavailable, Selection
from tirjudge.best_of_n.methods import open_method
from tirjudge.generation.base import GeneratorFailed
from tirjudge.judge import Judge
from tirjudge.judging.judgment import Judgment
from tirjudge.judging.questions import Conversation
from tirjudge.rollout.concurrency import EventLoopThread
from tirjudge_environments import derive_seed
from tirjudge_environments.tasks import read_task
from tirjudge_sandbox import SandboxUnavailable


def best_of(
    judge: Judge,
    prompt: Conversation,
    candidates: Sequence[str],
    method: str = "pairwise",
    *,
    answers: Sequence[int | None] | None = None,
    group_size: int = 4,
    seed: int = 0,
) -> Selection:
    """Select one of N candidates with a judge, by one of `METHODS`; works inside a running event loop too.

    `answers` tells `pointwise` and `round-robin` which candidates give the same answer: equal numbers are
    equal answers, None is no answer; by default, equal texts are. Raises RefereeUnavailable if the model or
    the sandbox failed or cannot be opened, and ValueError for an invalid prompt, method or option.
    """
    thread = EventLoopThread("tirjudge-best-of-n")
    try:
        return thread.run(
            abest_of(judge, prompt, candidates, method, answers=answers, group_size=group_size, seed=seed)
        )
    finally:
        thread.close()


async def abest_of(
    judge: Judge,
    prompt: Conversation,
    candidates: Sequence[str],
    method: str = "pairwise",
    *,
    answers: Sequence[int | None] | None = None,
    group_size: int = 4,
    seed: int = 0,
) -> Selection:
    """Select one of N candidates with a judge; the async version of `best_of`."""
    selecting = open_method(method, group_size=group_size, seed=seed)
    messages = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    row = {"prompt": messages, "responses": list(candidates)}
    task = read_task(row, default_id=f"{derive_seed(repr(messages), *candidates):08x}")
    same = tuple(map(task.candidates.index, task.candidates)) if answers is None else tuple(answers)
    if len(same) != len(task.candidates):
        raise ValueError(f"{len(same)} answers for {len(task.candidates)} candidates")
    referee = _JudgeReferee(judge, prompt, task.candidates)
    return await selecting.select(CandidateSet(task, where=""), Grade(None, same), referee)


@dataclass(frozen=True, slots=True)
class _JudgeReferee:
    """A referee that asks a `Judge`."""

    judge: Judge
    prompt: Conversation
    candidates: Sequence[str]

    async def score(self, candidate: int) -> float | None:
        return (await _scored(self.judge.ascore(self.prompt, self.candidates[candidate]))).score

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        shown = [self.candidates[index] for index in candidates]
        judgment = await _scored(self.judge.arank(self.prompt, shown))
        return tuple(candidates[place] for place in judgment.best)


async def _scored(judging: Awaitable[Judgment]) -> Judgment:
    """Return the judgment, or raise RefereeUnavailable if the model or the sandbox failed."""
    try:
        judgment = await judging
    except (GeneratorFailed, SandboxUnavailable) as error:
        raise RefereeUnavailable(str(error), passing=True) from None
    if judgment.stop.unscored:
        raise RefereeUnavailable(f"{judgment.stop}: {judgment.detail}", passing=judgment.stop.down)
    return judgment
