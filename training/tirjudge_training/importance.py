"""Truncated importance sampling: what was drawn by one engine, trained by another."""

from __future__ import annotations

from typing import Any


def truncated_weights(trained: Any, sampled: Any, cap: float) -> Any:
    """Per token, the ratio of the trainer's probability to the sampler's, at most `cap`; no gradient.

    Two engines compute the same weights with other roundings, so that the samples are slightly off-policy
    (Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025). Args are
    logprobs `[rows, completion tokens]`.
    """
    return (trained.detach() - sampled).exp().clamp(max=cap)
