"""The reward of TIR-Judge (TIR section 4.2, Eq. 3 and 4), and checks that every reward needs."""

from __future__ import annotations

from collections.abc import Iterable

from tirjudge_environments.types import (
    Episode,
    JudgeTask,
    Reward,
    Trajectory,
    Unscored,
    Verdict,
)
from tirjudge_sandbox import Execution, Status

MAX_CALLS = 3
"""Programs that a trajectory may request without losing the tool part of the reward."""

NO_TOOL_DOMAINS = frozenset({"safety", "helpfulness"})
"""Domains in which the format part requires a verdict without any tool call."""


def tir_reward(*, correct: bool, well_formed: bool, tools_in_order: bool) -> Reward:
    """Return R = Rc * (0.1 + 0.9 * [Rt and Rf]), from 0 to 1, with its parts."""
    return Reward(
        total=correct * (0.1 + 0.9 * (well_formed and tools_in_order)),
        parts={"correct": float(correct), "format": float(well_formed), "tool": float(tools_in_order)},
    )


def tools_in_order(trajectory: Trajectory) -> bool:
    """Return Rt: True if every requested program ran without error and there were at most three."""
    ran = all(
        isinstance(call.outcome, Execution) and call.outcome.status is Status.OK for call in trajectory.calls
    )
    return ran and len(trajectory.calls) <= MAX_CALLS


def unlabelled(episode: Episode) -> Unscored | None:
    """Return the reason if nothing in this episode can be scored, for want of a label."""
    return Unscored("the task has no label") if episode.task.label is None else None


def incomparable(episode: Episode) -> Unscored | None:
    """Return the reason if the responses of this episode cannot be compared."""
    if len(episode.task.candidates) < 2:
        return Unscored("a single response has nothing to be compared with")
    return unlabelled(episode)


def label_scores_highest(task: JudgeTask, verdicts: Iterable[Verdict | None]) -> bool:
    """Return True if every response has a score and the labelled one scores highest (TIR Eq. 3)."""
    scores = {index: score for one in verdicts if one is not None for index, score in one.scores.items()}
    # A missing score is a wrong answer: otherwise a judge could win by not scoring the other responses.
    if task.label is None or len(scores) < len(task.candidates):
        return False
    return all(scores[task.label] > score for index, score in scores.items() if index != task.label)


def failed(trajectory: Trajectory) -> Unscored | None:
    """Return the reason if this trajectory says nothing about the policy."""
    if trajectory.stop.unscored:
        return Unscored(f"{trajectory.stop.value}: {trajectory.detail}")
    return None
