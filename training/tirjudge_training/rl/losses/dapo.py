"""The token-level loss of DAPO, with which TIR-Judge was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_training.rl.losses.base import Loss


class Dapo(Loss):
    """Averages over all tokens of a batch with equal weight (TIR-Judge Eq. 2, JudgeLRM footnote 2)."""

    def arguments(self) -> Mapping[str, Any]:
        return {"loss_type": "dapo", "importance_sampling_level": "token"}
