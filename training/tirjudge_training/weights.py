"""The full weights of a trained model: shards gathered, a LoRA adapter merged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tirjudge_training.processes import Processes

ADAPTER, WRAPPED = ".lora_", ".base_layer."
"""Parts of PEFT's parameter names: of an adapter's own weights, and of the weights that it modifies."""


def whole_weights(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of every weight; tied weights appear under their first name only.

    The model is not changed. If its parameters are sharded over processes (FSDP), every process must iterate
    over all of them, since gathering is a collective operation.
    """
    import torch

    seen = set()
    for name, weight in model.state_dict(keep_vars=True).items():
        # Tied weights are one object under two names; a model file stores them once.
        if ADAPTER in name or id(weight) in seen:
            continue
        seen.add(id(weight))
        with torch.no_grad():
            tensor = _gathered(weight)
            if name.endswith(f"{WRAPPED}weight"):  # not the bias of a layer, which Qwen2 has
                tensor = tensor + _added(model.get_submodule(name.rpartition(WRAPPED)[0]))
        yield name.replace(WRAPPED, "."), tensor


def on_the_first(model: Any, processes: Processes) -> dict[str, Any]:
    """Return the full weights in the first process, an empty dict in the others; all must make this call."""
    first = processes.rank == 0
    return {name: tensor.cpu() for name, tensor in whole_weights(model) if first}


def _added(layer: Any) -> Any:
    """Return what an adapter adds to a layer's weight: scaling * B A (LoRA, Hu et al. 2021, section 4.1)."""
    (adapter,) = layer.active_adapters
    below, above = (_gathered(part[adapter].weight) for part in (layer.lora_A, layer.lora_B))
    return layer.scaling[adapter] * (above @ below)


def _gathered(weight: Any) -> Any:
    """Return the tensor itself, or the full tensor of a DTensor, gathered from all processes."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight.detach()
