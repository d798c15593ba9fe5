"""The layers that LoRA adapters are on in training: a recipe's targets, and a run's first adapter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tirjudge.generation.local.loading import adapted_modules, tied_targets
from tirjudge.generation.model_files import CONFIG, Adapter
from tirjudge.models import resolve_model
from tirjudge.storage.settings_text import json_file
from tirjudge_training.distributed.processes import Sharding
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.recipe_file import BadRecipe

PLAIN = {
    "bias": "none",
    "lora_bias": False,
    "modules_to_save": None,
    "target_parameters": None,
    "trainable_token_indices": None,
    "use_dora": False,
}
"""PEFT's settings with which an adapter is nothing but two factors for each of its layers."""


def linear_layers(network: Any) -> dict[str, Any]:
    """Return the linear layers of a model by their place, without the output layer."""
    import torch

    head = network.get_output_embeddings()
    return {
        place: module
        for place, module in network.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }


def require_targets(network: Any, lora: LoraConfig, model: str) -> None:
    """Raise BadRecipe, with the names of the linear layers, for a target that is none of them."""
    layers = linear_layers(network)
    names = list(dict.fromkeys(place.rpartition(".")[2] for place in layers))
    if not names:
        raise BadRecipe(f"model.lora: {model} has no linear layers for an adapter: leave out [model.lora]")
    for target in lora.targets:
        places = [place for place, _ in network.named_modules() if f".{place}".endswith(f".{target}")]
        if not places or any(place not in layers for place in places):
            raise BadRecipe(
                "model.lora.targets: an adapter is on linear layers below the output layer, and "
                f"{target!r} is none of {model}, which has {', '.join(names)}: name some of these, or none "
                "for all"
            )


def require_start(network: Any, base: str, lora: LoraConfig | None) -> None:
    """Raise BadRecipe for an adapter that a run cannot begin with; `network` is the model below it.

    A stage that keeps its adapter goes on with that of its start, so that both must be alike. In the other
    cases the adapter is merged first, whatever it is on.
    """
    folder = Path(resolve_model(base))
    adapter = Adapter.of(folder)
    if adapter is None:
        return
    config = json_file(folder / CONFIG)
    if lora is None or lora.merge:
        ends = {*tied_targets(network, folder), *(config.get("modules_to_save") or ())}
        if ends and Sharding.launched() is Sharding.FSDP:
            raise BadRecipe(
                f"model.base: {base} is an adapter on {', '.join(sorted(ends))}, which FSDP cannot merge: "
                "merge it in one process first"
            )
        return
    for key, own, stated in _stated(folder, config, adapter, lora):
        if own != stated:
            raise BadRecipe(
                f"model.lora.{key}: {base} is an adapter of {key} {own}, with which training goes on: set "
                f"model.lora.{key}={own}, with another --output if the run has begun"
            )
    layers = linear_layers(network)
    other = [key for key, plain in PLAIN.items() if (config.get(key) or plain) != plain]
    other += sorted({place.rpartition(".")[2] for place in adapted_modules(folder) - layers.keys()})
    if other:
        raise BadRecipe(
            f"model.base: {base} is an adapter with {', '.join(other)}, with which training cannot go on: "
            "set model.lora.merge=true, which merges it into its model first"
        )


def _stated(
    folder: Path, config: dict[str, Any], adapter: Adapter, lora: LoraConfig
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each key of `[model.lora]`, its value in the adapter, and that in the recipe."""
    yield "rank", adapter.rank, lora.rank
    yield "alpha", float(config.get("lora_alpha", 8)), lora.alpha
    if lora.targets:
        names = {place.rpartition(".")[2] for place in adapted_modules(folder)}
        yield "targets", sorted(names), sorted({target.rpartition(".")[2] for target in lora.targets})
