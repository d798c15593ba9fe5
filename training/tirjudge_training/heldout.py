"""Greedy accuracy of a judge on held-out tasks, and on validation tasks while it is trained."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import Field

from tirjudge.judging.meta_judge import RewardQuestions
from tirjudge.progress import ProgressReporter
from tirjudge.records.result_row import failed
from tirjudge.statistics.proportions import Proportion
from tirjudge.storage.durable_files import RunFolder
from tirjudge_environments import Environment, Episode, Reward, Score
from tirjudge_environments.types import FrozenModel
from tirjudge_sandbox import Execution
from tirjudge_training.distributed.device import Dtype
from tirjudge_training.distributed.processes import ALONE, Processes, SharedRows
from tirjudge_training.rl.dynamic_sampling import FormattedTask, score_tasks
from tirjudge_training.rl.rollout_engine import Engine, RolloutConfig

ANSWERS = "answers.jsonl"
"""The file of a measurement with each `Answer`, the id of its task and its number."""


class HeldoutConfig(FrozenModel):
    """The tasks and limits of a held-out measurement."""

    n: int = Field(default=500, gt=0)
    """Tasks per format."""
    seed: int = 0
    """Seed of the choice of tasks; the same for every run, so that runs can be compared."""
    max_tokens: int | None = Field(default=None, gt=0)
    """New tokens per trajectory, the sandbox's included; None is the limit of RL."""
    before: bool = False
    """Measure the base model too if the run begins with a warm-up, which a base model that already judges is
    compared with."""

    def rollout(self, rl: RolloutConfig) -> RolloutConfig:
        """Return the rollout settings of RL with the token limit of a measurement."""
        return rl if self.max_tokens is None else rl.model_copy(update={"max_tokens": self.max_tokens})


class ValidationConfig(FrozenModel):
    """The settings of the choice among the steps of an RL stage."""

    n: int = Field(default=100, gt=0)
    """Tasks per judge, at most; each validated step answers all tasks greedily (ours)."""
    every: int = Field(default=10, gt=0)
    """Generation batches between two validations; the last step is validated too (ours)."""
    keep: int = Field(default=1, gt=0)
    """Snapshots of the best steps to keep: weights alone, in bfloat16 (ours)."""
    select: bool = False
    """End the method `rl` with its best step, as every round of `iterative` does, instead of its last
    weights."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one held-out task."""

    format: str
    family: str
    domain: str
    correct: bool | None
    """True if the reward counts the verdicts of all views as right; None if the sandbox or the generator
    failed, which says nothing about the model."""
    reward: float | None
    verdicts: int
    """Views that ended in a verdict, out of `views`."""
    views: int
    calls: int
    """Program calls in all views."""
    ran: int
    """Programs executed, not counting refused ones."""
    errors: int
    """Executed programs that did not exit by themselves with code 0."""


def answer(formatted: FormattedTask, episode: Episode, scores: Sequence[Score]) -> Answer:
    """Return the outcome of a task from its episode and the scores of its views."""
    calls = [call for trajectory in episode.trajectories for call in trajectory.calls]
    rewards = [score for score in scores if isinstance(score, Reward)]
    # One failed view leaves the whole task unscored.
    scored = len(rewards) == len(scores)
    return Answer(
        format=formatted.format,
        family=str(formatted.task.gold.get("family", "")),
        domain=formatted.task.domain,
        correct=all(reward.teaches for reward in rewards) if scored else None,
        reward=sum(reward.total for reward in rewards) / len(rewards) if scored else None,
        verdicts=sum(trajectory.verdict is not None for trajectory in episode.trajectories),
        views=len(episode.trajectories),
        calls=len(calls),
        ran=sum(isinstance(call.outcome, Execution) for call in calls),
        errors=sum(map(failed, calls)),
    )


def measure(
    model: str,
    tasks: Sequence[FormattedTask],
    environments: Mapping[str, Environment],
    rollout: RolloutConfig,
    *,
    enable_thinking: bool | None = None,
    dtype: Dtype = "float32",
    reward_questions: Callable[[], RewardQuestions | None] = lambda: None,
    folder: RunFolder | None = None,
    file: str = ANSWERS,
    say: Callable[[str], None] = lambda line: None,
    processes: Processes = ALONE,
) -> dict[str, Any]:
    """Return a `summary` of the greedy answers of a model, a folder or a hub id, to the tasks.

    With a `folder`, every answer is appended to its `file`, and a killed measurement resumes from there.
    The tasks are divided among `processes`, all of which must make this call and get the same summary.
    `enable_thinking` is the thinking mode of the prompts, see `ChatEncoder`, and `dtype` the type of the
    weights.
    `reward_questions` opens the meta-judge that answers the questions of rewards, if there is one. `say`
    receives lines of progress.
    """
    rows = None if folder is None else SharedRows(folder, file, processes)
    # Stored by index, since answers arrive out of order.
    # Read once for all processes, which must divide the same tasks among them.
    stored = [] if rows is None else processes.first(lambda: list(rows.read()))
    own = {field.name for field in fields(Answer)}
    answers = {row["index"]: Answer(**{name: row[name] for name in own}) for row in stored}
    left = [(index, task) for index, task in enumerate(tasks) if index not in answers]
    if answers and left:
        say(f"resumes after {len(answers)} of {len(tasks)} answers")
    mine = processes.share(left)
    unit = "tasks answered" + (" by this process or before" if processes.world > 1 else "")
    progress = ProgressReporter(say, unit=unit, total=len(tasks), done=len(answers))

    async def ask(engine: Engine) -> None:
        async for index, rollouts in score_tasks(mine, engine.rollouts(0), size=1, progress=progress):
            answers[index] = answer(rollouts.formatted, rollouts.episodes[0], rollouts.scores[0])
            if rows is not None:
                task = rollouts.formatted.task
                rows.append({"index": index, "id": task.id, **asdict(answers[index])})

    if left:
        # Greedy, so that the accuracy has no sampling noise.
        greedy = rollout.model_copy(update={"temperature": 0.0})
        with Engine.load(
            model,
            environments,
            greedy,
            reward_questions(),
            enable_thinking=enable_thinking,
            dtype=dtype,
            processes=processes,
        ) as engine:
            engine.run(ask(engine))
    answers = {index: one for each in processes.every(answers) for index, one in each.items()}
    if rows is not None:
        rows.merge()
    return summary(answers[index] for index in sorted(answers))


def summary(answers: Iterable[Answer]) -> dict[str, Any]:
    """Return, per format, the numbers of model cards and results; accuracies have Wilson's 95 % interval."""
    formats: dict[str, list[Answer]] = {}
    for one in answers:
        formats.setdefault(one.format, []).append(one)
    return {
        name: _summary(group)
        | {
            "families": _parts(group, lambda one: one.family),
            "domains": _parts(group, lambda one: one.domain),
        }
        for name, group in formats.items()
    }


def _summary(answers: Sequence[Answer]) -> dict[str, Any]:
    # An answer without a score says nothing about the model, so it is in no denominator.
    scored = [one for one in answers if one.correct is not None]
    ran = sum(one.ran for one in scored)
    views = sum(one.views for one in scored)
    verdicts = sum(one.verdicts for one in scored)
    return {
        **_accuracy(scored),
        "unscored": len(answers) - len(scored),
        "reward": sum(one.reward or 0.0 for one in scored) / len(scored) if scored else None,
        "verdict_rate": verdicts / views if views else None,
        "calls_per_verdict": sum(one.calls for one in scored) / verdicts if verdicts else None,
        "program_errors": _proportion(Proportion(sum(one.errors for one in scored), ran)),
    }


def _parts(answers: Sequence[Answer], part: Callable[[Answer], str]) -> dict[str, Any]:
    names = sorted({part(one) for one in answers})
    return {
        name: _accuracy([one for one in answers if part(one) == name and one.correct is not None])
        for name in names
    }


def _accuracy(scored: Sequence[Answer]) -> dict[str, Any]:
    return {"accuracy": _proportion(Proportion(sum(bool(one.correct) for one in scored), len(scored)))}


def _proportion(share: Proportion) -> dict[str, Any]:
    low, high = share.interval
    return {"rate": share.rate, "low": low, "high": high, "n": share.n, "count": share.successes}


def lines(results: Mapping[str, Any]) -> list[str]:
    """Format a summary, one line per format."""
    return [
        f"{name}: accuracy {percentage(result['accuracy'])}; failed programs "
        f"{percentage(result['program_errors'])}; {_calls(result['calls_per_verdict'])}"
        for name, result in results.items()
    ]


def _calls(per_verdict: float | None) -> str:
    return "no verdict" if per_verdict is None else f"{per_verdict:.2f} programs per verdict"


def percentage(proportion: Mapping[str, Any]) -> str:
    """Format a proportion, as in `92.4% [89.7%, 94.4%], n = 500`."""
    return str(Proportion(proportion["count"], proportion["n"]))


VALIDATION = "validation.jsonl"
"""The file of an RL stage with every validated step: `step` (generation batches), `correct` and `n`, tasks
whose sampler and sandbox did not fail."""
SNAPSHOTS = "snapshots"
"""The subfolder of an RL stage with the best validated weights, `step-N`."""


class Validation:
    """Measures greedy answers of the live sampler, and keeps snapshots of the steps with the most right ones.

    A checkpoint holds Adam's moments too and is 6 to 8 times as large as a snapshot in bfloat16, so that few
    checkpoints can be kept; the best of all validated steps is kept however early it was.
    """

    def __init__(
        self,
        run: RunFolder,
        tasks: Sequence[FormattedTask],
        rollout: RolloutConfig,
        *,
        every: int,
        keep: int,
        save: Callable[[Path, Any], None],
        say: Callable[[str], None] = lambda line: None,
        processes: Processes = ALONE,
    ) -> None:
        """Validate after `every` generation batches, and `keep` so many snapshots; answers are greedy.

        No training task shares a prompt with `tasks`. Every one of several `processes` calls `save`, which
        writes a model to a folder.
        """
        self._run, self._tasks, self._save, self._say = run, tasks, save, say
        self._rollout = rollout.model_copy(update={"temperature": 0.0})
        self._every, self._keep, self._processes = every, keep, processes
        # Steps that a killed run validated are not validated again, even if their training is repeated.
        self._counts: Counts = processes.first(lambda: validated(run.read(VALIDATION)))

    def __call__(self, engine: Engine, model: Any, step: int, last: bool) -> None:
        """Validate the weights after `step` batches, if it is their turn; the engine must have these weights.

        Every one of several processes makes this call.
        """
        # Step 0 has the weights of the start, which are no candidate of the selection.
        if not step or (step % self._every and not last) or step in self._counts or not self._tasks:
            return
        mine = self._processes.share(list(enumerate(self._tasks)))
        found = self._processes.every(engine.run(self._count(engine, mine)))
        correct, n = (sum(column) for column in zip(*found, strict=True))
        counts = {**self._counts, step: (correct, n)}
        best = best_steps(counts)[: self._keep]
        if step in best:
            self._write(step, model)
        # Noted after the snapshot is complete: a step without this row is validated again.
        self._run.append(VALIDATION, {"step": step, "correct": correct, "n": n})
        self._counts = counts
        self._processes.first(lambda: self._drop(best))
        failed = f"; {len(self._tasks) - n} could not be answered" if n < len(self._tasks) else ""
        self._say(f"step {step} has {correct} of {n} validation tasks right{failed}")

    async def _count(self, engine: Engine, tasks: Sequence[tuple[int, FormattedTask]]) -> tuple[int, int]:
        """Return the right answers, and all answers: a failed sandbox or sampler says nothing of a step."""
        found: list[bool | None] = []
        progress = ProgressReporter(self._say, unit="validation tasks answered", total=len(tasks))
        rollouts_of = engine.rollouts(0, self._rollout)
        async for _, rollouts in score_tasks(tasks, rollouts_of, size=1, progress=progress):
            found.append(answer(rollouts.formatted, rollouts.episodes[0], rollouts.scores[0]).correct)
        return found.count(True), len(found) - found.count(None)

    def _write(self, step: int, model: Any) -> None:
        folder = self._run.path / SNAPSHOTS / f"step-{step}"
        partial = folder.with_name(f"partial-{step}")
        self._processes.first(lambda: shutil.rmtree(partial, ignore_errors=True))
        # Written beside its place and then renamed: a folder `step-N` is always a whole snapshot.
        self._save(partial, model)
        self._processes.first(lambda: _replace(partial, folder))

    def _drop(self, best: Sequence[int]) -> None:
        """Delete the snapshots of other steps than these, and what a killed run left."""
        names = {f"step-{step}" for step in best}
        for folder in (self._run.path / SNAPSHOTS).glob("*"):
            if folder.name not in names:
                shutil.rmtree(folder)


Counts = Mapping[int, tuple[int, int]]
"""Validated steps, each with its right answers and all answers."""


def validated(rows: Iterable[Mapping[str, Any]]) -> Counts:
    """Return the counts in the rows of `VALIDATION`."""
    return {row["step"]: (row["correct"], row["n"]) for row in rows}


def best_steps(counts: Counts) -> list[int]:
    """Return the validated steps, the one with the highest share of right answers first.

    Of equals it is the later one, which has seen more data. A step without an answer is last.
    """
    shares = {step: right / n if n else -1.0 for step, (right, n) in counts.items()}
    return sorted(shares, key=lambda step: (shares[step], step), reverse=True)


def _replace(partial: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
