"""The losses that RL can train with, found by name, those of other packages included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tirjudge_sandbox.registry import Plugins
from tirjudge_training.rl.losses.base import Loss

__all__ = ["LOSSES", "Loss", "open_loss"]

LOSSES = Plugins(
    "tirjudge.losses",
    "loss",
    "tirjudge_training.rl.losses",
    {
        "dapo": "dapo:Dapo",
        "per_response": "per_response:PerResponse",
        "sequence": "sequence:Sequence",
    },
)
"""Each member, called with the options of `[rl] loss_options`, returns a `Loss`."""


def open_loss(name: str, options: Mapping[str, Any] | None = None) -> Loss:
    """Return the loss of this name. Raises ValueError, in one line, for an unknown name or a bad option."""
    return cast(Loss, LOSSES.open(name, **(options or {})))
