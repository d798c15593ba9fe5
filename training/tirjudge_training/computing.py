"""Where a process computes, and how exactly: a GPU in bfloat16, a CPU in float32; weights are float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tirjudge_training.policies.base import PolicyGenerator


@dataclass(frozen=True, slots=True)
class Computing:
    """What a device's products are computed with; what a trainer keeps of them."""

    device: str
    """As torch names it, without a number: a launcher has chosen this process's GPU."""
    autocast: str | None
    """The type of matrix products where it is not the weights' own, for the trainer and its sampler alike."""
    checkpointing: bool
    """Whether activations are computed again on the way back, which saves memory, instead of kept."""

    def arguments(self) -> dict[str, Any]:
        """For TRL's configurations, whose defaults depend on less than this does."""
        on_a_cpu = {"use_cpu": True, "dataloader_pin_memory": False} if self.device == "cpu" else {}
        return {
            "bf16": self.autocast == "bfloat16",
            "gradient_checkpointing": self.checkpointing,
            # Every parameter is used, and looking for others breaks checkpointing under DDP.
            "ddp_find_unused_parameters": False,
            **on_a_cpu,
        }


def here() -> Computing:
    """What this process computes with: its GPU, if there is one."""
    import torch

    if torch.cuda.is_available():
        return Computing("cuda", autocast="bfloat16", checkpointing=True)
    return Computing("cpu", autocast=None, checkpointing=False)


def told(model: Any, generator: PolicyGenerator) -> dict[str, str]:
    """What `model` is trained with and `generator` samples with, for people and for `machine.json`."""
    import platform

    import torch

    computing, weights = here(), str(model.dtype).removeprefix("torch.")
    on_gpu = computing.device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else f"{platform.machine()} CPU",
        "torch": torch.__version__,
        "weights": weights,
        "training": computing.autocast or weights,
        "sampling": generator.precision,
        "sampler": type(generator).__name__,
    }
