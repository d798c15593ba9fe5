"""The loss with one probability ratio for a whole response, of GSPO and of the rationale judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_training.rl.losses.base import Loss


class Sequence(Loss):
    """Averages over responses, with the geometric mean of a response's token ratios as its one ratio.

    The rationale judge's loss, inferred from its Eq. 5, whose ratio has no token index, and from its clip of
    2e-4, which is as narrow as GSPO's.
    """

    mean_of = "responses"

    def arguments(self) -> Mapping[str, Any]:
        return {"loss_type": "grpo", "importance_sampling_level": "sequence"}
