"""Truncated importance sampling, which corrects for sampling and training in different engines."""

from __future__ import annotations

from typing import Any


def truncated_weights(trained: Any, sampled: Any, cap: float) -> Any:
    """Return each token's ratio of trainer to sampler probability, at most `cap`, without a gradient.

    Two engines round differently with the same weights, which makes the samples slightly off-policy (Yao et
    al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025). `trained` and
    `sampled` are logprobs `[rows, completion tokens]`.
    """
    return (trained.detach() - sampled).exp().clamp(max=cap)
