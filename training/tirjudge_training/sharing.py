"""How the processes of a run share the state of training out, as accelerate's launcher tells them."""

from __future__ import annotations

import os
from enum import StrEnum


class Sharing(StrEnum):
    """Who holds what of weights, gradients and Adam's moments."""

    NONE = "plain processes"
    """Each holds all of them."""
    FSDP = "FSDP"
    """Each holds a part of all of them."""
    DEEPSPEED = "DeepSpeed"
    """Each holds all weights, and a part of the rest (ZeRO-2)."""

    @classmethod
    def launched(cls) -> Sharing:
        for sharing in (cls.FSDP, cls.DEEPSPEED):
            if os.environ.get(f"ACCELERATE_USE_{sharing.name}") == "true":
                return sharing
        return cls.NONE
