"""Group-relative advantages, and the filter of dynamic sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Filter = Literal["correctness", "reward", "none"]
"""The quantity that must differ within a group for it to be kept."""

Sigma = Literal["sample", "population", "none"]
"""`sample` divides by n - 1, as verl does, with which TIR-Judge was trained; `population` divides by n.

`none` keeps the differences from the mean (Dr. GRPO, arXiv 2503.20783, section 3.2), so that groups that are
nearly all right or all wrong do not count more than others.
"""


def advantages(
    rewards: Sequence[float | None], *, sigma: Sigma = "sample", eta: float = 0.0
) -> list[float | None]:
    """Return (R - mean) / (sigma + eta) over the rollouts of one view of one task (TIR-Judge §4.2, Eq. 2).

    With `sigma = "none"` it is R - mean.

    None stands for a rollout without a score: it is excluded from mean and sigma and has no advantage. A
    group with equal rewards has advantages of exactly 0.
    """
    # Unscored rollouts say nothing about the policy, so they must not shift the baseline.
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        return [None] * len(rewards)
    # fsum is exact, so the result does not depend on the order of the rollouts.
    mean = math.fsum(scored) / len(scored)
    spread = math.fsum((reward - mean) ** 2 for reward in scored)
    # Rounding of the mean can leave a tiny spread between equal rewards, hence the second test.
    # A group with a single scored rollout ends here too, so that n - 1 below is never 0.
    if spread == 0.0 or len(set(scored)) == 1:
        return [None if reward is None else 0.0 for reward in rewards]
    scale = 1.0 if sigma == "none" else math.sqrt(spread / (len(scored) - (sigma == "sample"))) + eta
    return [None if reward is None else (reward - mean) / scale for reward in rewards]


def teaches(right: Sequence[bool], rewards: Sequence[float], by: Filter) -> bool:
    """Return True if dynamic sampling keeps a group; both sequences contain its scored rollouts only.

    `correctness` is the paper's rule, 0 < #(Rc = 1) < G: it compares verdicts, not rewards, so a group that
    is right throughout is dropped even if format or tool use made its rewards differ (Eq. 2).
    """
    match by:
        case "correctness":
            return 0 < sum(right) < len(right)
        case "reward":
            return len(set(rewards)) > 1
        case "none":
            return len(rewards) > 0
