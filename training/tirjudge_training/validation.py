"""Validation of the policy while it is trained, and snapshots of the best weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tirjudge.storage.run_folder import RunFolder
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.evaluation import answer
from tirjudge_training.rl.dynamic_sampling import FormattedTask, score_tasks
from tirjudge_training.rl.engine import Engine, RolloutConfig

VALIDATION = "validation.jsonl"
"""The file of an RL stage with every validated step: `step` (generation batches), `correct` and `n`."""
SNAPSHOTS = "snapshots"
"""The subfolder of an RL stage with the best validated weights, `step-N`."""


class Validation:
    """Measures greedy answers of the live sampler, and keeps snapshots of the steps with the most right ones.

    A checkpoint holds Adam's moments too and is 6 to 8 times as large as a snapshot in bfloat16, so that few
    of them can be kept; the best of all validated steps is kept however early it was.
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
        """
        Args:
            run: the folder of the RL stage.
            tasks: validation tasks, which no training task shares a prompt with.
            rollout: the limits of an answer; it is greedy in any case.
            every: generation batches between two validations.
            keep: snapshots to keep.
            save: writes a model to a folder; every one of several `processes` makes the call.
        """
        self._run, self._tasks, self._save, self._say = run, tasks, save, say
        self._rollout = rollout.model_copy(update={"temperature": 0.0})
        self._every, self._keep, self._processes = every, keep, processes
        # Steps that a killed run validated are not validated again, even if their training is repeated.
        self._correct: dict[int, int] = processes.first(
            lambda: {row["step"]: row["correct"] for row in run.read(VALIDATION)}
        )

    def __call__(self, engine: Engine, model: Any, step: int, last: bool) -> None:
        """Validate the weights after `step` batches, if it is their turn; the engine must have these weights.

        Every one of several processes makes this call.
        """
        if not step or (step % self._every and not last) or step in self._correct or not self._tasks:
            return
        mine = self._processes.share(list(enumerate(self._tasks)))
        correct = sum(self._processes.every(engine.run(self._count(engine, mine))))
        counts = {**self._correct, step: correct}
        best = best_steps(counts)[: self._keep]
        if step in best:
            self._write(step, model)
        # Noted after the snapshot is complete: a step without this row is validated again.
        self._run.append(VALIDATION, {"step": step, "correct": correct, "n": len(self._tasks)})
        self._correct = counts
        self._processes.first(lambda: self._drop(best))
        self._say(f"step {step} has {correct} of {len(self._tasks)} validation tasks right")

    async def _count(self, engine: Engine, tasks: Sequence[tuple[int, FormattedTask]]) -> int:
        right = 0
        async for _, rollouts in score_tasks(tasks, engine.rollouts(0, self._rollout), size=1):
            right += bool(answer(rollouts.formatted, rollouts.episodes[0], rollouts.scores[0]).correct)
        return right

    def _write(self, step: int, model: Any) -> None:
        folder = self._run.path / SNAPSHOTS / f"step-{step}"
        partial = folder.with_name(f"partial-{step}")
        self._processes.first(lambda: shutil.rmtree(partial, ignore_errors=True))
        self._save(partial, model)
        self._processes.first(lambda: _replace(partial, folder))

    def _drop(self, best: Sequence[int]) -> None:
        """Delete the snapshots of other steps than these, and what a killed run left."""
        names = {f"step-{step}" for step in best}
        for folder in (self._run.path / SNAPSHOTS).glob("*"):
            if folder.name not in names:
                shutil.rmtree(folder)


def best_steps(correct: dict[int, int]) -> list[int]:
    """Return the validated steps, the best first; of equals the later one, which has seen more data."""
    return sorted(correct, key=lambda step: (correct[step], step), reverse=True)


def _replace(partial: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
