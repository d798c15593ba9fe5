"""Best-of-N from Python: one prompt, its candidates and a `Judge`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tirjudge.best_of_n.base import Grade, Question, RefereeDown, Selection
from tirjudge.best_of_n.methods import open_method
from tirjudge.judge import Conversation, Judge
from tirjudge.judgment import Judgment
from tirjudge.rollout.concurrency import LoopThread
from tirjudge_environments import derive_seed
from tirjudge_environments.tasks import read_task


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
    """Which of N candidates the judge selects, by one of `METHODS`; works inside a running event loop too.

    `answers` tell `pointwise` and `round-robin` which candidates give the same answer (equal numbers; None is
    no answer); without them equal texts do. Raises RefereeDown where the model or the sandbox failed,
    ValueError for what is no prompt or no method, and as `Judge.open` does.
    """
    thread = LoopThread("tirjudge-best-of-n")
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
    """`best_of`, to be awaited."""
    selecting = open_method(method, group_size=group_size, seed=seed)
    messages = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    row = {"prompt": messages, "responses": list(candidates)}
    task = read_task(row, default_id=f"{derive_seed(repr(messages), *candidates):08x}")
    alike = tuple(map(task.candidates.index, task.candidates)) if answers is None else tuple(answers)
    if len(alike) != len(task.candidates):
        raise ValueError(f"{len(alike)} answers for {len(task.candidates)} candidates")
    unknown = (0.0,) * len(alike)
    referee = _Asking(judge, prompt, task.candidates)
    return await selecting.select(Question(task, where=""), Grade(unknown, alike), referee)


@dataclass(frozen=True, slots=True)
class _Asking:
    """A referee that asks a `Judge`."""

    judge: Judge
    prompt: Conversation
    candidates: Sequence[str]

    async def score(self, candidate: int) -> float | None:
        return _given(await self.judge.ascore(self.prompt, self.candidates[candidate])).score

    async def best(self, candidates: Sequence[int]) -> tuple[int, ...]:
        shown = [self.candidates[index] for index in candidates]
        judgment = _given(await self.judge.arank(self.prompt, shown))
        return tuple(candidates[place] for place in judgment.best)


def _given(judgment: Judgment) -> Judgment:
    if judgment.stop.unscored:
        raise RefereeDown(f"{judgment.stop}: {judgment.detail}", passing=judgment.stop.down)
    return judgment
