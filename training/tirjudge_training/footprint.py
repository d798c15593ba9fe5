"""What a run needs of memory and disk, told from a model's configuration before any weight is loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tirjudge_training.lora import LoraConfig
from tirjudge_training.policies.base import Sampler
from tirjudge_training.sharing import Sharing

TRAINED = 16
"""Bytes a parameter while it is trained: weight, gradient and Adam's two moments, all in float32."""
FROZEN = 4
"""Bytes a parameter that is not trained: under an adapter, in the KL reference, or on its way to vLLM."""
LOGIT = 12
"""Bytes a logit of one forward and backward pass: itself, its logarithm, its gradient."""
HALF = 2
"""Bytes of a bfloat16."""
UNLIMITED = 1 << 60

CGROUPS = Path("/sys/fs/cgroup")
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the memory of a model depends on."""

    parameters: int
    vocabulary: int
    layers: int = 0
    """0 where the configuration does not say: the parts that need it are left out."""
    hidden: int = 0
    intermediate: int = 0
    cached: int = 0
    """Elements of keys and values of one token, in all layers."""
    adapter: int | None = None
    """Parameters that LoRA trains in place of the model's own; None: all of these are trained."""

    @property
    def trained(self) -> int:
        return self.parameters if self.adapter is None else self.adapter


def shape(model: str) -> Shape:
    """Of a model folder or hub id. Raises OSError for one that does not exist, ValueError for one unknown."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model, trust_remote_code=False).get_text_config()
    layers, heads = (
        getattr(config, name, None) or 0 for name in ("num_hidden_layers", "num_attention_heads")
    )
    hidden = getattr(config, "hidden_size", None) or 0
    each = getattr(config, "head_dim", None) or (hidden // heads if heads else 0)
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
    """With an adapter. Raises ValueError also where the model has no layers of the names that it is for."""
    from peft import inject_adapter_in_model

    network = inject_adapter_in_model(lora.adapter(), _network(model))
    return replace(shape(model), adapter=_count(p for p in network.parameters() if p.requires_grad))


def training_bytes(shape: Shape, *, reference: bool = False, sampler: Sampler = "transformers") -> int:
    """Memory that training cannot do without, whatever the batch; of one of the processes that were launched.

    Activations and logits come on top (see `logits_bytes`), and vLLM's engine.
    """
    sharing, shares = Sharing.launched(), int(os.environ.get("WORLD_SIZE", "1"))
    frozen = shape.parameters if reference or shape.adapter is not None else 0
    state = TRAINED * shape.trained + FROZEN * frozen
    if sharing is Sharing.FSDP:
        return state // shares + (FROZEN * shape.parameters if sampler == "transformers" else 0)
    if sharing is Sharing.DEEPSPEED:
        copies = 2 if reference and shape.adapter is None else 1
        return TRAINED * shape.trained // shares + copies * deepspeed_weight() * shape.parameters
    return state


def deepspeed_weight() -> int:
    """Bytes of a weight in the model itself, which DeepSpeed casts; what it trains is a copy in float32."""
    return FROZEN if os.environ.get("ACCELERATE_MIXED_PRECISION", "no") == "no" else HALF


def logits_bytes(rows: int, tokens: int, vocabulary: int) -> int:
    """Of a micro-batch whose rows are as long as they may be: mostly the largest single thing."""
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
    """By part, of one of `devices` that share the state out (FSDP), training `rows` of full length at a time.

    An estimate: activations by the usual count of a layer's products, kept in bfloat16 at its boundaries
    alone (gradient checkpointing); the generator with `cached` tokens in its cache.
    """
    held, tokens = shape.parameters, rows * (prompt + response)
    trained = shape.trained
    shared = ", shared out" if devices > 1 else ""
    layer = shape.parameters // shape.layers if shape.layers else 0
    parts = {
        f"weights, float32{shared}": FROZEN * held // devices,
        f"adapter, float32{shared}": 4 * (shape.adapter or 0) // devices,
        f"gradients, float32{shared}": 4 * trained // devices,
        f"Adam's moments, float32{shared}": 8 * trained // devices,
        f"KL reference, float32{shared}": FROZEN * held // devices
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


def memory_there() -> tuple[int, str]:
    """(bytes that are free to train with, where): of this process's GPU, or of the machine or container."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()[0], f"free on {torch.cuda.get_device_name()}"
    return min(_machine(), *_containers()), "free in memory"


def disk_there(folder: Path) -> int:
    """Bytes that the run may fill: what is free, and what it has filled already."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    filled = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return shutil.disk_usage(there).free + filled


def gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**29 else f"{size / 2**20:,.1f} MiB"


def _generator_bytes(shape: Shape, sampler: Sampler, devices: int, cached: int) -> dict[str, int]:
    """vLLM's engine beside the trainer, or the trainer's own weights; of shared ones, a whole copy."""
    if sampler == "vllm-server":
        return {}
    if sampler == "vllm":
        return {
            "generator: weights, bfloat16, whole": HALF * shape.parameters,
            "generator: cache of keys and values": HALF * shape.cached * cached,
        }
    return {
        "generator: weights, float32, whole": FROZEN * shape.parameters if devices > 1 else 0,
        "generator: cache of keys and values": FROZEN * shape.cached * cached,
    }


def _network(model: str) -> Any:
    """The model without its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def _count(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _machine() -> int:
    for line in MEMORY.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return UNLIMITED


def _containers() -> Iterator[int]:
    """Limits of the control group around this process, in either version's words."""
    for file in (CGROUPS / "memory.max", CGROUPS / "memory" / "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no such group, or its limit is the word `max`
            yield int(file.read_text())
