"""Group-relative advantages, and which groups have anything to teach."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Filter = Literal["correctness", "reward", "none"]
"""What must differ within a group for it to be kept."""

Sigma = Literal["sample", "population"]
"""The standard deviation with n - 1 below, as in verl, with which TIR-Judge was trained; or with n."""


def advantages(
    rewards: Sequence[float | None], *, sigma: Sigma = "sample", eta: float = 0.0
) -> list[float | None]:
    """(R - mean) / (sigma + eta) over the rollouts of one view of one task (TIR-Judge §4.2, Eq. 2).

    None stands for a rollout that could not be scored: it is out of mean and sigma, and has no advantage. A
    group whose rewards are all equal has advantages of exactly 0.
    """
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        return [None] * len(rewards)
    mean = math.fsum(scored) / len(scored)
    spread = math.fsum((reward - mean) ** 2 for reward in scored)
    if spread == 0.0 or len(set(scored)) == 1:
        return [None if reward is None else 0.0 for reward in rewards]
    scale = math.sqrt(spread / (len(scored) - (sigma == "sample"))) + eta
    return [None if reward is None else (reward - mean) / scale for reward in rewards]


def teaches(correct: Sequence[float], rewards: Sequence[float], by: Filter) -> bool:
    """Whether a group is kept by dynamic sampling; both sequences hold its scored rollouts only.

    `correctness` is the paper's rule, 0 < #(Rc = 1) < G: it looks at the verdicts and not at the rewards, so
    a group that is right throughout is dropped even where format or tools made its rewards differ (Eq. 2).
    """
    match by:
        case "correctness":
            return 0 < sum(value == 1.0 for value in correct) < len(correct)
        case "reward":
            return len(set(rewards)) > 1
        case "none":
            return len(rewards) > 0
