"""The memory that a run needs, estimated from a model's configuration, and what a machine has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tirjudge.models import resolve_model
from tirjudge.models.machine import free_memory
from tirjudge_training.distributed.processes import Sharding
from tirjudge_training.model_folder import LoraConfig
from tirjudge_training.policies.base import Sampler

TRAINED = 16
"""Bytes per trained parameter: weight, gradient and Adam's two moments, all in float32."""
FROZEN = 4
"""Bytes per frozen parameter: under an adapter, in the KL reference, or on its way to vLLM."""
LOGIT = 12
"""Bytes per logit of a forward and backward pass: the logit, its log-probability and its gradient."""
HALF = 2
"""Bytes per value in bfloat16."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that its memory depends on."""

    parameters: int
    vocabulary: int
    layers: int = 0
    """0 if the configuration does not say; the parts that need it are then left out."""
    hidden: int = 0
    intermediate: int = 0
    cached: int = 0
    """Elements of the KV cache per token, in all layers."""
    adapter: int | None = None
    """Parameters of a LoRA adapter, the only ones trained; None if all weights are trained."""

    @property
    def trained(self) -> int:
        """Number of parameters that are trained."""
        return self.parameters if self.adapter is None else self.adapter


def shape(model: str) -> Shape:
    """Read the shape of a model folder or hub id; raises OSError if it is missing, ValueError if unknown."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(resolve_model(model), trust_remote_code=False).get_text_config()
    layers, heads = (
        getattr(config, name, None) or 0 for name in ("num_hidden_layers", "num_attention_heads")
    )
    hidden = getattr(config, "hidden_size", None) or 0
    each = getattr(config, "head_dim", None) or (hidden // heads if heads else 0)
    # With grouped-query attention several query heads share one head of keys and values.
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    return Shape(
        parameters=_count(_network(model).parameters()),
        vocabulary=config.vocab_size,
        layers=layers,
        hidden=hidden,
        intermediate=getattr(config, "intermediate_size", None) or 0,
        cached=2 * layers * key_heads * each,
    )


def adapted(model: str, lora: LoraConfig) -> Shape:
    """Read the shape of a model with an adapter; raises ValueError also if it lacks the target layers."""
    from peft import inject_adapter_in_model

    network = inject_adapter_in_model(lora.adapter(), _network(model))
    return replace(shape(model), adapter=_count(p for p in network.parameters() if p.requires_grad))


def training_bytes(shape: Shape, *, reference: bool = False, sampler: Sampler = "transformers") -> int:
    """Return the memory that one of the launched processes needs for training, whatever the batch size.

    Activations, logits (see `logits_bytes`) and vLLM's engine come on top.
    """
    sharing, world = Sharding.launched(), int(os.environ.get("WORLD_SIZE", "1"))
    # Under LoRA the base model is frozen, and it is also the KL reference with the adapter turned off.
    frozen = shape.parameters if reference or shape.adapter is not None else 0
    state = TRAINED * shape.trained + FROZEN * frozen
    if sharing is Sharding.FSDP:
        return state // world + (FROZEN * shape.parameters if sampler == "transformers" else 0)
    if sharing is Sharding.DEEPSPEED:
        copies = 2 if reference and shape.adapter is None else 1
        return TRAINED * shape.trained // world + copies * deepspeed_weight() * shape.parameters
    return state


def deepspeed_weight() -> int:
    """Return the bytes per weight of the model, which DeepSpeed casts; it trains a copy in float32."""
    return FROZEN if os.environ.get("ACCELERATE_MIXED_PRECISION", "no") == "no" else HALF


def logits_bytes(rows: int, tokens: int, vocabulary: int) -> int:
    """Return the bytes of a micro-batch's logits at full length, mostly the largest single part."""
    return rows * tokens * vocabulary * LOGIT


def device_bytes(
    shape: Shape,
    *,
    devices: int,
    reference: bool,
    rows: int,
    prompt: int,
    response: int,
    sampler: Sampler,
    cached: int,
) -> dict[str, int]:
    """Return an estimate by part for one of `devices` (FSDP if several), with `rows` of full length.

    Activations follow the usual count of a layer's products and are kept in bfloat16 at layer boundaries only
    (gradient checkpointing); the generator holds `cached` tokens in its KV cache.
    """
    weights, tokens = shape.parameters, rows * (prompt + response)
    trained = shape.trained
    shared = ", sharded" if devices > 1 else ""
    layer = shape.parameters // shape.layers if shape.layers else 0
    parts = {
        f"weights, float32{shared}": FROZEN * weights // devices,
        f"adapter, float32{shared}": 4 * (shape.adapter or 0) // devices,
        f"gradients, float32{shared}": 4 * trained // devices,
        f"Adam's moments, float32{shared}": 8 * trained // devices,
        f"KL reference, float32{shared}": FROZEN * weights // devices
        if reference and shape.adapter is None
        else 0,
        "two layers gathered, bfloat16": 2 * HALF * layer if devices > 1 else 0,
        "activations kept between layers": HALF * tokens * shape.hidden * shape.layers,
        "activations of one layer, and their gradients": (
            2 * HALF * tokens * (6 * shape.hidden + 3 * shape.intermediate)
        ),
        "logits": logits_bytes(rows, response, shape.vocabulary),
        **_generator_bytes(shape, sampler, devices, cached),
    }
    return {part: size for part, size in parts.items() if size}


def available_memory() -> tuple[int, str]:
    """Return the free bytes of this process's GPU, machine or container, and words for where they are."""
    import torch

    # With a GPU only its memory is checked: model, gradients and moments are there.
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0], f"free on {torch.cuda.get_device_name()}"
    return free_memory(), "free in memory"


def available_disk(folder: Path) -> int:
    """Return the bytes that a run may use: free space, and what its folder already holds."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    # A resumed run writes its files again, so what they take counts as free.
    filled = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return shutil.disk_usage(existing).free + filled


def gib(size: int) -> str:
    """Format bytes as GiB, or as MiB below half a GiB."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**29 else f"{size / 2**20:,.1f} MiB"


def _generator_bytes(shape: Shape, sampler: Sampler, devices: int, cached: int) -> dict[str, int]:
    """Return the parts of the sampler: vLLM's engine, or the KV cache and a whole copy of sharded weights."""
    if sampler == "vllm-server":
        return {}
    if sampler == "vllm":
        return {
            "generator: weights, bfloat16, whole": HALF * shape.parameters,
            "generator: KV cache": HALF * shape.cached * cached,
        }
    return {
        "generator: weights, float32, whole": FROZEN * shape.parameters if devices > 1 else 0,
        "generator: KV cache": FROZEN * shape.cached * cached,
    }


def _network(model: str) -> Any:
    """Build the model without its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(resolve_model(model), trust_remote_code=False)
    # The meta device builds all layers without allocating their weights.
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def _count(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)
