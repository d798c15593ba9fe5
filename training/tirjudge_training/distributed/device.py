"""The device of a process and its precision: bfloat16 on a GPU, float32 on a CPU; weights are float32."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from tirjudge.models.machine import has_bfloat16
from tirjudge.storage.durable_files import RunFolder
from tirjudge_training.distributed.profiling import return_gpu_cache

Dtype = Literal["float32", "bfloat16"]
"""The type of a model's weights."""
Attention = Literal["sdpa", "eager", "flash_attention_2", "flash_attention_3"]
"""transformers' name of the attention in forward and backward passes."""
MACHINE = "machine.json"


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels of a model under training; a separate sampler has other kernels."""

    attention: Attention = "sdpa"
    liger: bool = False
    """Liger's Triton kernels for norms, rotary positions and the MLP; the fused output layer is TRL's."""

    def apply(self, model: Any) -> None:
        """Replace a loaded model's layers by Liger's, if these are wanted."""
        if self.liger:
            from transformers.integrations.liger import apply_liger_kernel

            # These replace the model's forward pass, which TRL replaces too.
            apply_liger_kernel(model, {"cross_entropy": False, "fused_linear_cross_entropy": False})


@dataclass(frozen=True, slots=True)
class Device:
    """A device with its precision and activation checkpointing."""

    device: str
    """torch's name without an index, since the launcher has chosen this process's GPU."""
    autocast: str | None
    """The type of matrix products in trainer and sampler; None is the type of the weights."""
    checkpointing: bool
    """Recompute activations in the backward pass instead of keeping them, which saves memory."""

    def arguments(self) -> dict[str, Any]:
        """Return arguments for TRL's configurations, whose defaults do not depend on the device."""
        on_cpu = {"use_cpu": True, "dataloader_pin_memory": False} if self.device == "cpu" else {}
        return {
            "bf16": self.autocast == "bfloat16",
            "gradient_checkpointing": self.checkpointing,
            # Every parameter is used, and searching for unused ones breaks checkpointing under DDP.
            "ddp_find_unused_parameters": False,
            **on_cpu,
        }


PLAIN = Kernels()
"""torch's own kernels."""


def current_device() -> Device:
    """Return the device of this process: its GPU, or else the CPU."""
    import torch

    # The same precision for trainer and sampler keeps their logprobs close to each other.
    if torch.cuda.is_available():
        return Device("cuda", autocast="bfloat16", checkpointing=True)
    return Device("cpu", autocast=None, checkpointing=False)


def weights_dtype(stated: Dtype | Literal["auto"] | None) -> Dtype:
    """Return the type of the weights; `auto` is bfloat16 where the device computes in it, else float32."""
    if stated == "auto":
        # Autocast would round float32 weights in every step. Other processors emulate bfloat16, several times
        # slower than float32.
        on_gpu = current_device().device != "cpu"
        return "bfloat16" if on_gpu or has_bfloat16() else "float32"
    return stated or "float32"


@contextmanager
def moments_on_host(optimizer: Any) -> Iterator[None]:
    """Keep the moments of an optimizer in host memory inside the block; None has no moments yet.

    Counts of steps, which are single numbers, stay where they are.
    """
    states = optimizer.state.values() if optimizer is not None else ()
    moments = [(state, name) for state in states for name in state if getattr(state[name], "ndim", 0)]
    devices = [state[name].device for state, name in moments]
    for state, name in moments:
        state[name] = state[name].to("cpu")
    return_gpu_cache()
    try:
        yield
    finally:
        for (state, name), device in zip(moments, devices, strict=True):
            state[name] = state[name].to(device)


def record_machine(
    run: RunFolder,
    say: Callable[[str], None],
    model: Any,
    *,
    sampler: str | None = None,
    precision: str | None = None,
) -> None:
    """Write device and precision of training and sampling to `machine.json`, and report them.

    `sampler` is the name of the generator's class, and `precision` the type of its matrix products; None in a
    stage that samples nothing.
    """
    import platform

    import torch

    own, weights = current_device(), str(model.dtype).removeprefix("torch.")
    on_gpu = own.device == "cuda"
    machine = {
        "device": torch.cuda.get_device_name() if on_gpu else f"{platform.machine()} CPU",
        "torch": torch.__version__,
        "weights": weights,
        "training": own.autocast or weights,
        **({"sampling": precision} if precision else {}),
        **({"sampler": sampler} if sampler else {}),
    }
    run.write(MACHINE, json.dumps(machine, indent=2) + "\n")
    say(", ".join(f"{name} {value}" for name, value in machine.items()))
