"""Whole tasks into a training batch: dynamic sampling, redraws, and the rows that reach the loss."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tirjudge_environments import Environment, Episode, JudgeTask, Reward, Score, Trajectory, Unscored, View
from tirjudge_training.advantages import Filter, advantages, teaches

CORRECT = "correct"
"""The reward part that dynamic sampling looks at: TIR-Judge's Rc, 0 or 1."""


@dataclass(frozen=True, slots=True)
class Draw:
    """A task and the judge format it is put to."""

    format: str
    task: JudgeTask


Deal = Callable[[int, int], Draw]
"""(round, position) to a draw of this step. Round 0 is the batch itself, later rounds are replacements."""


class Roller(Protocol):
    """What is needed of a `tirjudge.rollout.Rollout`."""

    environment: Environment

    async def episode(self, task: JudgeTask, sample: int = 0) -> Episode: ...

    async def group(self, task: JudgeTask, size: int) -> Sequence[Episode]: ...


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one view of one task: what a baseline is taken over."""

    draw: Draw
    view: View
    trajectories: tuple[Trajectory, ...]
    scores: tuple[Score, ...]

    @property
    def rewards(self) -> list[float | None]:
        return [score.total if isinstance(score, Reward) else None for score in self.scores]

    @property
    def advantages(self) -> list[float | None]:
        return advantages(self.rewards)

    def teaches(self, by: Filter) -> bool:
        scored = [score for score in self.scores if isinstance(score, Reward)]
        return teaches([s.parts[CORRECT] for s in scored], [s.total for s in scored], by)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one generation step brought: every group, and of them those that fill the slots."""

    groups: tuple[Group, ...]
    """All that were rolled out, in the order drawn; the later rounds at the end."""
    kept: tuple[Group, ...]
    """Of `groups`, those that reach the loss: at most as many as there are slots."""
    first: int
    """How many of `groups` the first round brought: the only ones that are no selection."""
    rounds: int
    """Rounds of replacement that were needed, 0 or more."""
    redrawn: int
    """Episodes that could not be scored and were drawn again."""


def draw_seed(*key: int | str) -> int:
    """A seed in [0, 2**63) that depends on nothing but `key`, on any machine and after any resume."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


async def gather(
    deal: Deal,
    rollouts: Mapping[str, Roller],
    *,
    slots: int,
    size: int,
    by: Filter = "correctness",
    refills: int = 0,
    redraws: int = 1,
) -> Batch:
    """Fill `slots` groups of `size` rollouts with whole tasks; raises RuntimeError if nothing can be scored.

    DAPO's dynamic sampling with TIR-Judge's filter (Eq. 2): tasks whose groups teach nothing are replaced for
    at most `refills` rounds. An episode whose sandbox or generator failed is drawn again at most `redraws`
    times. Views of a task stay together; a slot into which no whole task fits stays empty.
    """
    groups: list[Group] = []
    kept: list[Group] = []
    first = redrawn = rounds = 0
    for turn in range(refills + 1):
        draws = list(_fitting(deal, turn, rollouts, slots - len(kept)))
        if not draws:
            break
        rolled = await asyncio.gather(*(_roll(draw, rollouts[draw.format], size, redraws) for draw in draws))
        for found, again in rolled:
            groups += found
            redrawn += again
            kept += [group for group in found if group.teaches(by)]
        first, rounds = (len(groups), 0) if turn == 0 else (first, turn)
    _some_scored(groups)
    return Batch(tuple(groups), tuple(kept), first, rounds, redrawn)


def _fitting(deal: Deal, turn: int, rollouts: Mapping[str, Roller], room: int) -> Iterator[Draw]:
    """The next draws whose views all fit into the room that is left; a few that do not are passed over."""
    for position in range(4 * room):
        draw = deal(turn, position)
        views = len(rollouts[draw.format].environment.views(draw.task))
        if views <= room:
            room -= views
            yield draw
        if room == 0:
            return


async def _roll(draw: Draw, rollout: Roller, size: int, redraws: int) -> tuple[list[Group], int]:
    """All groups of one task, and how many of its episodes were drawn again."""
    episodes = list(await rollout.group(draw.task, size))
    scores = rollout.environment.score(episodes, {})
    redrawn = 0
    for attempt in range(1, redraws + 1):
        failed = [i for i, row in enumerate(scores) if any(isinstance(score, Unscored) for score in row)]
        if not failed:
            break
        fresh = await asyncio.gather(*(rollout.episode(draw.task, attempt * size + i) for i in failed))
        for i, episode in zip(failed, fresh, strict=True):
            episodes[i] = episode
        redrawn += len(failed)
        scores = rollout.environment.score(episodes, {})
    views = [trajectory.view for trajectory in episodes[0].trajectories]
    return [
        Group(
            draw,
            view,
            tuple(episode.trajectories[i] for episode in episodes),
            tuple(row[i] for row in scores),
        )
        for i, view in enumerate(views)
    ], redrawn


def _some_scored(groups: Sequence[Group]) -> None:
    scores = [score for group in groups for score in group.scores]
    unscored = [score for score in scores if isinstance(score, Unscored)]
    if len(unscored) == len(scores):
        reason = unscored[0].reason if unscored else "no task fits into the batch"
        raise RuntimeError(f"none of {len(scores)} rollouts could be scored: {reason}")
