"""The reward of TIR-Judge: correctness, scaled by format and tool use (TIR section 4.2, Eq. 3 and 4)."""

from __future__ import annotations

from tirjudge_environments.types import Episode, Reward, Trajectory, Unscored
from tirjudge_sandbox import Execution, Status

MAX_CALLS = 3
"""Programs that a trajectory may ask for without losing the tool part."""

NO_TOOL_DOMAINS = frozenset({"safety", "helpfulness"})
"""Where the format part asks for a verdict without any tool call."""


def tir_reward(*, correct: bool, well_formed: bool, tools_in_order: bool) -> Reward:
    """R = Rc * (0.1 + 0.9 * [Rt and Rf]), from 0 to 1, with its parts."""
    return Reward(
        total=correct * (0.1 + 0.9 * (well_formed and tools_in_order)),
        parts={"correct": float(correct), "format": float(well_formed), "tool": float(tools_in_order)},
    )


def tools_in_order(trajectory: Trajectory) -> bool:
    """Rt: every program asked for was run without error, and at most three were asked for."""
    ran = all(
        isinstance(call.outcome, Execution) and call.outcome.status is Status.OK for call in trajectory.calls
    )
    return ran and len(trajectory.calls) <= MAX_CALLS


def unlabelled(episode: Episode) -> Unscored | None:
    """Why nothing in this episode can be scored, if so."""
    return Unscored("the task has no label") if episode.task.label is None else None


def failed(trajectory: Trajectory) -> Unscored | None:
    """Why this trajectory says nothing about the policy, if so."""
    if trajectory.stop.unscored:
        return Unscored(f"{trajectory.stop.value}: {trajectory.detail}")
    return None
