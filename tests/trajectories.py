"""Trajectories without a dialogue, for tests of what becomes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tirjudge_environments import Prompt, StopReason, Trajectory, Verdict, View

_BARE = Trajectory(
    view=View("AB", (0, 1)), sample=0, prompt=Prompt(messages=()), prompt_ids=None, segments=(), calls=(),
    stop=StopReason.VERDICT, verdict=Verdict(choice=0),
)  # fmt: skip


def bare_trajectory(**changes: Any) -> Trajectory:
    """Return a trajectory of a pair that prefers A, without text or calls, and with these changes."""
    return replace(_BARE, **changes)
