"""What a judge server allows."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, FiniteFloat, PositiveFloat

from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.intake import IntakeLimits

OPEN_PATHS = frozenset({"/healthz", "/readyz"})


class JudgeServerSettings(BaseModel):
    """Who may ask, how much at once, and what a reward is where the judge has no verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    access: Access = Access(open_paths=OPEN_PATHS)
    intake: IntakeLimits = IntakeLimits()
    no_verdict_reward: FiniteFloat | None = None
    """The reward of a response that the judge ended without a score for; None: the request fails."""
    check_seconds: PositiveFloat = 10.0
    """In which the model and the sandbox must answer `/readyz`."""
