"""Sharding of the training state over processes, as configured by accelerate's launcher."""

from __future__ import annotations

import os
from enum import StrEnum


class Sharing(StrEnum):
    """The part of weights, gradients and Adam's moments that each process holds."""

    NONE = "plain processes"
    """All of them (DDP)."""
    FSDP = "FSDP"
    """A shard of all of them."""
    DEEPSPEED = "DeepSpeed"
    """All weights, and a shard of the rest (ZeRO-2)."""

    @classmethod
    def launched(cls) -> Sharing:
        """Return the sharding that the launcher configured through its environment variables."""
        for sharing in (cls.FSDP, cls.DEEPSPEED):
            if os.environ.get(f"ACCELERATE_USE_{sharing.name}") == "true":
                return sharing
        return cls.NONE
