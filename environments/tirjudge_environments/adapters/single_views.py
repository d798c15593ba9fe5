"""One rollout at a time: which view a row is, and which judges cannot be had so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_environments.base import Environment
from tirjudge_environments.types import Episode, JudgeTask, Reward, Score, Trajectory, Unscored, View

VIEW_COLUMN = "view"
"""The column that names a row's view, for a task that has several."""

_WHO_CAN = (
    "these can: our own trainer (`tirjudge train`), and TRL with the rollout_func "
    "`tirjudge_training.trl_rollout.JudgeRolloutFunc`"
)


class LinkedViews(ValueError):
    """The reward of this judge needs more than one rollout; the text names the frameworks that can."""


def row_view(environment: Environment, task: JudgeTask, row: Mapping[str, Any], framework: str) -> View:
    """The view that a row stands for.

    Raises LinkedViews for a judge whose reward looks at several views at once, or at another model's
    answers: a part of such a reward would be a wrong one. Raises ValueError where several views are scored
    each alone and the row does not name one of them in its column `view`.
    """
    views = environment.views(task)
    if environment.linked:
        raise LinkedViews(
            f"this judge's reward links the views of a task, and {framework} scores one rollout at a time; "
            + _WHO_CAN
        )
    named = {view.name: view for view in views}
    if len(views) == 1:
        return views[0]
    if row.get(VIEW_COLUMN) not in named:
        raise ValueError(
            f"task {task.id!r} has the views {', '.join(named)}: a row for each, "
            f"its name in the column `{VIEW_COLUMN}`"
        )
    return named[str(row[VIEW_COLUMN])]


def score_alone(environment: Environment, task: JudgeTask, trajectory: Trajectory) -> Score:
    """The score of one rollout; Unscored where another model would have to be asked."""
    group = [Episode(task, trajectory.sample, (trajectory,))]
    if environment.ask(group):
        return Unscored(f"the reward asks another model, which nothing here does; {_WHO_CAN}")
    return environment.score(group, {})[0][0]


def reward_of(score: Score, task: JudgeTask) -> Reward:
    """For a framework without a place for an unscored rollout: raises RuntimeError for one."""
    if isinstance(score, Unscored):
        raise RuntimeError(f"task {task.id!r} cannot be scored: {score.reason}")
    return score
