"""Dynamic sampling: collect rollouts of whole tasks until enough groups carry a learning signal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from tirjudge.progress import ProgressReporter
from tirjudge.rollout import Rollout, all_or_none, as_finished
from tirjudge.rollout.concurrency import each_second
from tirjudge_environments import Episode, JudgeTask, Reward, Score, Trajectory, Unscored, View
from tirjudge_environments.session import Transcript
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.distributed.task_queue import take_turns
from tirjudge_training.rl.advantages import Filter, teaches


@dataclass(frozen=True, slots=True)
class FormattedTask:
    """A task with the judge format in which it is asked."""

    format: str
    task: JudgeTask


RoundProgress = Callable[[int, int, int], None]
"""Receives the rollouts that ended since the last call, their tokens, and all rollouts of the batch so far.

A call every second without an ended rollout shows that sampling goes on.
"""
TaskSampler = Callable[[int, int], FormattedTask | None]
"""Maps (round, position) to a task of this step, or to None if there are no more. Round 0 is the batch
itself; later rounds are replacements."""


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one view of one task, over which the advantage is normalised."""

    view: View
    trajectories: tuple[Trajectory, ...]
    scores: tuple[Score, ...]

    @property
    def rewards(self) -> list[float | None]:
        return [score.total if isinstance(score, Reward) else None for score in self.scores]

    def teaches(self, by: Filter) -> bool:
        """True if dynamic sampling keeps the group."""
        scored = [score for score in self.scores if isinstance(score, Reward)]
        return teaches([score.teaches for score in scored], [score.total for score in scored], by)


@dataclass(frozen=True, slots=True)
class ScoredRollouts:
    """All episodes of one task, with their scores."""

    formatted: FormattedTask
    episodes: tuple[Episode, ...]
    scores: tuple[tuple[Score, ...], ...]
    """One tuple per episode, one score per view."""
    resampled: int
    """Episodes that could not be scored at first and were sampled again."""

    @property
    def written(self) -> int:
        """Tokens that the model wrote in all rollouts."""
        return sum(map(written, self.episodes))

    @property
    def groups(self) -> list[Group]:
        return [
            Group(
                trajectory.view,
                tuple(e.trajectories[i] for e in self.episodes),
                tuple(s[i] for s in self.scores),
            )
            for i, trajectory in enumerate(self.episodes[0].trajectories)
        ]


def written(episode: Episode) -> int:
    """Return the tokens that the model wrote in an episode."""
    return sum(sum(Transcript.of(trajectory).mask) for trajectory in episode.trajectories)


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Wall seconds of the rounds of a batch, over all processes."""

    seconds: float = 0.0
    waited: float = 0.0
    """Mean seconds for which a task that was done waited for the end of its round."""
    idle: float = 0.0
    """Mean seconds for which a process had nothing left to sample."""


@dataclass(frozen=True, slots=True)
class SampledBatch:
    """The result of one generation step."""

    first: tuple[ScoredRollouts, ...]
    """The tasks of the batch itself."""
    replacements: tuple[ScoredRollouts, ...]
    """Tasks sampled to replace groups without a learning signal."""
    rounds: int
    """Rounds of replacement, 0 or more."""
    kept: tuple[Group, ...]
    """The groups that enter the loss, at most one per slot."""
    times: RoundTimes = RoundTimes()

    @property
    def written(self) -> int:
        """Tokens that the model wrote in all rollouts of the batch."""
        return sum(rollouts.written for rollouts in (*self.first, *self.replacements))


async def gather(
    sample_task: TaskSampler,
    rollouts: Mapping[str, Rollout],
    *,
    slots: int,
    size: int,
    by: Filter = "correctness",
    replacement_rounds: int = 0,
    resamples: int = 1,
    at_once: int | None = None,
    processes: Processes = ALONE,
    progress: RoundProgress = lambda ended, tokens, rollouts: None,
    drawn: Callable[[Sequence[int]], None] = lambda positions: None,
    adjust: Callable[[ScoredRollouts], ScoredRollouts] = lambda rollouts: rollouts,
) -> SampledBatch:
    """Fill `slots` groups of `size` rollouts with whole tasks; raises RuntimeError if nothing can be scored.

    This is DAPO's dynamic sampling with TIR-Judge's filter (Eq. 2): groups without a learning signal are
    replaced, by task, for at most `replacement_rounds` rounds. An episode whose sandbox or generator failed
    is sampled again at most `resamples` times. Views of a task stay together; a slot that no whole task fits
    stays empty.

    All processes take tasks from one queue, at most as many as make `at_once` episodes run in each, and every
    process receives the whole batch, so that filter and replacements do not depend on the number of
    processes. `progress` is called for each of this process's rollouts, and `drawn` with the positions of the
    tasks that a round has used. `adjust` may change the scores of a task, before groups are filtered.
    """
    rounds: list[list[ScoredRollouts]] = []
    kept: list[Group] = []
    times = RoundTimes()
    total = 0
    while len(kept) < slots and len(rounds) <= replacement_rounds:
        fitting = _fitting_tasks(sample_task, len(rounds), rollouts, slots - len(kept))
        if rounds and not fitting:
            break  # the rows have come to an end
        tasks = list(fitting.values())
        total += size * -(-len(tasks) // processes.world)

        async def scored(
            number: int, part_done: Callable[[], None], tasks: list[FormattedTask] = tasks, total: int = total
        ) -> ScoredRollouts:
            def sampled(episode: Episode) -> None:
                progress(1, written(episode), total)
                part_done()

            formatted = tasks[number]
            found = await score_task(formatted, rollouts[formatted.format], size, resamples, sampled)
            return adjust(found)

        async with each_second(lambda total=total: progress(0, 0, total)):  # type: ignore[misc]
            outcome = await take_turns(len(tasks), scored, parts=size, at_once=at_once, processes=processes)
        # Every process sees all results, so that all take the same decisions below.
        found = list(outcome.results.values())
        kept += [group for one in found for group in one.groups if group.teaches(by)]
        drawn(tuple(fitting))
        rounds.append(found)
        times = RoundTimes(
            times.seconds + outcome.seconds, times.waited + outcome.waited, times.idle + outcome.idle
        )
    first, later = rounds[0], [one for replacements in rounds[1:] for one in replacements]
    _require_a_score(first)
    return SampledBatch(tuple(first), tuple(later), len(rounds) - 1, tuple(kept), times)


def _fitting_tasks(
    sample_task: TaskSampler, round_number: int, rollouts: Mapping[str, Rollout], slots: int
) -> dict[int, FormattedTask]:
    """Return, by position, the next tasks whose views fit into the remaining slots; others are skipped."""
    tasks = {}
    # Bounded, because a dataset may hold only tasks with more views than slots remain.
    for position in range(4 * slots):
        formatted = sample_task(round_number, position)
        if formatted is None:
            break
        views = len(rollouts[formatted.format].environment.views(formatted.task))
        if views <= slots:
            slots -= views
            tasks[position] = formatted
        if slots == 0:
            break
    return tasks


async def score_tasks(
    tasks: Iterable[tuple[int, FormattedTask]],
    rollouts: Mapping[str, Rollout],
    *,
    size: int,
    progress: ProgressReporter,
    resamples: int = 2,
    at_once: int = 64,
) -> AsyncGenerator[tuple[int, ScoredRollouts]]:
    """Yield the rollouts of every numbered task as they finish, with at most `at_once` tasks running.

    `progress` counts the tasks.
    """

    async def numbered(number: int, task: FormattedTask) -> tuple[int, ScoredRollouts]:
        return number, await score_task(task, rollouts[task.format], size, resamples)

    calls = (numbered(number, task) for number, task in tasks)
    # Closed explicitly: an error in the caller's loop would otherwise leave rollouts running.
    waiting = each_second(lambda: progress.show(progress.done, progress.total))
    async with aclosing(as_finished(calls, at_once)) as finished, waiting:
        async for result in finished:
            yield progress.count(result)


async def score_task(
    formatted: FormattedTask,
    rollout: Rollout,
    size: int,
    resamples: int,
    sampled: Callable[[Episode], None] = lambda episode: None,
) -> ScoredRollouts:
    """Return `size` scored samples of a task.

    An episode whose sandbox or generator failed is sampled again at most `resamples` times. One without a
    score for another reason, such as a prompt that is too long, is not.

    `sampled` gets each of the first `size` episodes when it ends.
    """

    async def counted(sample: int) -> Episode:
        episode = await rollout.episode(formatted.task, sample)
        sampled(episode)
        return episode

    episodes = await all_or_none(counted(sample) for sample in range(size))
    scores = await rollout.score(episodes)
    resampled = 0
    for attempt in range(1, resamples + 1):
        failed = [i for i, one in enumerate(episodes) if any(t.stop.down for t in one.trajectories)]
        if not failed:
            break
        # A new sample number, hence a new seed: the same one would repeat what failed.
        fresh = await asyncio.gather(*(rollout.episode(formatted.task, attempt * size + i) for i in failed))
        for i, episode in zip(failed, fresh, strict=True):
            episodes[i] = episode
        resampled += len(failed)
        # All are scored again, since some rewards compare the episodes of a group.
        scores = await rollout.score(episodes)
    return ScoredRollouts(formatted, tuple(episodes), tuple(scores), resampled)


Keep = Literal["shortest", "fewest_calls"]
"""The right answer that supervised training learns from: by length, or by calls and then length."""


def cheapest(costs: Sequence[tuple[int, int]], keep: Keep) -> int | None:
    """Return the index of the right answer to keep by its (length, calls), the first among equals."""
    keys = [(length,) if keep == "shortest" else (calls, length) for length, calls in costs]
    return min(range(len(keys)), key=keys.__getitem__, default=None)


def full(scores: Iterable[Score], least: float) -> bool:
    """Return True if every view of an episode has the full reward, `least`, see `Reward.full`."""
    return all(isinstance(score, Reward) and score.full(least) for score in scores)


def _require_a_score(scored: Sequence[ScoredRollouts]) -> None:
    scores = [score for rollouts in scored for row in rollouts.scores for score in row]
    unscored = [score for score in scores if isinstance(score, Unscored)]
    if len(unscored) == len(scores):
        reason = unscored[0].reason if unscored else "no task fits into the batch"
        raise RuntimeError(
            f"none of {len(scores)} rollouts could be scored, resampled ones included: {reason}"
        )
