"""Views and scores for frameworks that score one rollout at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from tirjudge_environments.base import Environment
from tirjudge_environments.types import Episode, JudgeTask, Reward, Score, Trajectory, Unscored, View

VIEW_COLUMN = "view"
"""The column that names the view of a row, for tasks with several views."""
TASK_COLUMN = "task"
"""The column with a task as JSON, which may take the place of the columns of a judge's row: Parquet gives all
rows of a column the same fields, and tasks have different ones."""
VERL_MANAGER = "tirjudge_environments.adapters.verl_views.JudgeLoopManager"
"""The manager of agent loops with which verl trains a judge whose views are linked."""
_TASKS = TypeAdapter(JudgeTask)

_WHO_CAN = (
    "use our own trainer (`tirjudge train`), or TRL with the rollout_func "
    "`tirjudge_training.rl.trl_rollout.JudgeRolloutFunc`, or verl by `tirjudge launch verl`"
)


class LinkedViews(ValueError):
    """The reward of this judge needs several rollouts; the message names the trainers that support it."""


def write_task(task: JudgeTask) -> str:
    """Return a task as JSON, for the column `task` of a row."""
    return _TASKS.dump_json(task).decode()


def read_stored_task(text: str) -> JudgeTask:
    """Return the task that `write_task` wrote; raises ValueError for anything else."""
    return _TASKS.validate_json(text)


def row_view(environment: Environment, task: JudgeTask, row: Mapping[str, Any], framework: str) -> View:
    """Return the view of a row.

    Raises LinkedViews for a judge whose reward compares several views, since the reward of a single one would
    be wrong. Raises ValueError if the task has several views and the row does not name one in its column
    `view`.
    """
    views = environment.views(task)
    if environment.linked:
        raise LinkedViews(
            f"this judge's reward links the views of a task, and {framework} scores one rollout at a time: "
            + _WHO_CAN
        )
    named = {view.name: view for view in views}
    if len(views) == 1:
        return views[0]
    if row.get(VIEW_COLUMN) not in named:
        raise ValueError(
            f"task {task.id!r} has the views {', '.join(named)}: give one row per view, "
            f"with its name in the column `{VIEW_COLUMN}`"
        )
    return named[str(row[VIEW_COLUMN])]


def score_alone(environment: Environment, task: JudgeTask, trajectory: Trajectory) -> Score:
    """Score one rollout; Unscored if the reward needs the answers of another model."""
    return score_together(environment, task, (trajectory,))[0]


def score_together(
    environment: Environment, task: JudgeTask, trajectories: Sequence[Trajectory]
) -> tuple[Score, ...]:
    """Score one rollout of each view of a task; Unscored if the reward needs the answers of another model."""
    group = [Episode(task, trajectories[0].sample, tuple(trajectories))]
    if environment.questions(group):
        reason = f"the reward needs the answers of another model, and adapters ask none: {_WHO_CAN}"
        return (Unscored(reason),) * len(trajectories)
    return environment.score(group, {})[0]


def reward_of(score: Score, task: JudgeTask) -> Reward:
    """Return the reward, for frameworks without unscored rollouts; raises RuntimeError for an Unscored."""
    if isinstance(score, Unscored):
        raise RuntimeError(f"task {task.id!r} cannot be scored: {score.reason}")
    return score
