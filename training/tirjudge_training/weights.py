"""The weights of a trained model as the plain model has them: shards gathered, an adapter merged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tirjudge_training.processes import Processes

ADAPTER, WRAPPED = ".lora_", ".base_layer."
"""What PEFT puts into the names of an adapter's own weights, and of those that it is added to."""


def whole_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Name and tensor of every weight, one after the other; of tied ones the first name only.

    The model is left as it is. Where its parameters are shared out over processes (FSDP), every process must
    go through all of them: they are gathered together.
    """
    import torch

    seen = set()
    for name, weight in model.state_dict(keep_vars=True).items():
        if ADAPTER in name or id(weight) in seen:
            continue
        seen.add(id(weight))
        with torch.no_grad():
            tensor = _gathered(weight)
            if name.endswith(f"{WRAPPED}weight"):  # and not a layer's bias, as Qwen2's have
                tensor = tensor + _added(model.get_submodule(name.rpartition(WRAPPED)[0]))
        yield name.replace(WRAPPED, "."), tensor


def on_the_first(model: Any, processes: Processes) -> dict[str, Any]:
    """The whole weights, in the first process's memory and in no other; every process makes this call."""
    first = processes.rank == 0
    return {name: tensor.cpu() for name, tensor in whole_weights(model) if first}


def _added(layer: Any) -> Any:
    """What an adapter adds to a layer's weight: scaling * B A (LoRA, Hu et al. 2021, section 4.1)."""
    (adapter,) = layer.active_adapters
    below, above = (_gathered(part[adapter].weight) for part in (layer.lora_A, layer.lora_B))
    return layer.scaling[adapter] * (above @ below)


def _gathered(weight: Any) -> Any:
    """The tensor itself, or that of a DTensor from the parts of all processes."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight.detach()
