"""The loss of GRPO as RM-R1 prints it, in which every response has the same weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_training.rl.losses.base import Loss


class PerResponse(Loss):
    """Averages over the tokens of each response, and then over the responses (RM-R1 Eq. 9)."""

    mean_of = "responses"

    def arguments(self) -> Mapping[str, Any]:
        return {"loss_type": "grpo", "importance_sampling_level": "token"}
