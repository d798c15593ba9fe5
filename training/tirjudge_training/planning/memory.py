"""The memory that a run needs, estimated from a model's configuration, and what a machine has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tirjudge.console_text import first_line
from tirjudge.generation.model_files import Adapter
from tirjudge.models import resolve_model
from tirjudge.models.machine import free_memory
from tirjudge_training.config_files import BadRecipe
from tirjudge_training.distributed.processes import Sharding
from tirjudge_training.model_folder import LoraConfig, base_of
from tirjudge_training.policies.base import Sampler

TRAINED = 16
"""Bytes per trained parameter: weight, gradient and Adam's two moments, all in float32."""
FROZEN = 4
"""Bytes per frozen parameter: under an adapter, in the KL reference of one device, or in vLLM's folder."""
HALF = 2
"""Bytes per value in bfloat16."""
TILE_TOKENS, TILE_WORDS = 4096, 32768
"""The tile of logits that TRL's fused output layer computes at a time; the whole logits never exist."""
VLLM_SHARE = 0.9
"""vLLM's own `gpu_memory_utilization`, if the recipe does not set it."""


LAYERS = ".layers."
"""The part of a parameter's name that marks it as one of a layer's, in the models of transformers."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that its memory depends on."""

    parameters: int
    vocabulary: int
    layers: int = 0
    """0 if the configuration does not say; the parts that need it are then left out."""
    hidden: int = 0
    intermediate: int = 0
    queries: int = 0
    """Width of the queries of one layer: heads times the size of a head."""
    keys: int = 0
    """Width of the keys of one layer, and of its values."""
    root: int = 0
    """Parameters outside the layers: embedding, output layer and last norm. FSDP keeps them gathered."""
    adapter: int | None = None
    """Parameters of a LoRA adapter, the only ones trained; None if all weights are trained."""

    @property
    def cached(self) -> int:
        """Elements of the KV cache per token, in all layers."""
        return 2 * self.layers * self.keys

    @property
    def layer(self) -> int:
        """Parameters of one layer, on average; 0 if the number of layers is unknown."""
        return (self.parameters - self.root) // self.layers if self.layers else 0

    @property
    def trained(self) -> int:
        """Number of parameters that are trained."""
        return self.parameters if self.adapter is None else self.adapter


def shape(model: str) -> Shape:
    """Read the shape of a model folder or hub id, of an adapter that of the model below it.

    Raises OSError if it is missing, and ValueError if it is unknown.
    """
    config = config_of(model).get_text_config()
    layers, heads = (
        getattr(config, name, None) or 0 for name in ("num_hidden_layers", "num_attention_heads")
    )
    hidden = getattr(config, "hidden_size", None) or 0
    each = getattr(config, "head_dim", None) or (hidden // heads if heads else 0)
    # With grouped-query attention several query heads share one head of keys and values.
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    network = skeleton(model)
    return Shape(
        parameters=_count(network.parameters()),
        vocabulary=config.vocab_size,
        layers=layers,
        hidden=hidden,
        intermediate=getattr(config, "intermediate_size", None) or 0,
        queries=heads * each,
        keys=key_heads * each,
        root=_count(weight for name, weight in network.named_parameters() if LAYERS not in name),
    )


def adapted(model: str, lora: LoraConfig) -> Shape:
    """Read the shape of a model with an adapter; raises ValueError also if it lacks the target layers."""
    from peft import inject_adapter_in_model

    network = inject_adapter_in_model(lora.adapter(), skeleton(model))
    return replace(shape(model), adapter=_count(p for p in network.parameters() if p.requires_grad))


@contextmanager
def model_errors(base: str) -> Iterator[None]:
    """Raise BadRecipe, in one line that names the model, where a run's model cannot be found or read."""
    if base.startswith((".", "/", "~")) and not Path(base).expanduser().exists():
        raise BadRecipe(f"no model {base!r}: there is no such file or folder")
    try:
        yield
    except (OSError, ValueError) as error:
        raise BadRecipe(
            f"no model {base!r}, neither a folder with one nor a hub id: {first_line(error)}"
        ) from None


def trained_shape(base: str, lora: LoraConfig | None) -> Shape:
    """Read the shape of what a run trains; raises BadRecipe if there is no model, or an adapter misfits."""
    with model_errors(base):
        found, adapter = shape(base), Adapter.of(Path(resolve_model(base)))
    if adapter is not None and lora is not None and not lora.merge and adapter.rank != lora.rank:
        raise BadRecipe(
            f"model.lora.rank: {base} is an adapter of rank {adapter.rank}, with which training goes on: "
            f"set model.lora.rank={adapter.rank}"
        )
    try:
        return found if lora is None else adapted(base, lora)
    except ValueError as error:
        raise BadRecipe(f"model.lora: {error}") from None


def training_bytes(
    shape: Shape, *, reference: bool = False, sampler: Sampler = "transformers", off_policy: bool = False
) -> int:
    """Return the memory that one of the launched processes needs for training, whatever the batch size.

    Activations and vLLM's engine come on top, see `device_bytes`.
    """
    sharing, world = Sharding.launched(), int(os.environ.get("WORLD_SIZE", "1"))
    # Under LoRA the base model is frozen, and it is also the KL reference with the adapter turned off.
    frozen = shape.parameters if reference or shape.adapter is not None else 0
    weight = cast_weight() if sharing is Sharding.FSDP and shape.adapter is None else FROZEN
    state = TRAINED * shape.trained + weight * frozen
    copied = sampler == "transformers" and (off_policy or sharing is Sharding.FSDP)
    sampling = FROZEN * shape.parameters if copied else 0
    if sharing is Sharding.FSDP:
        return state // world + sampling
    return state + sampling


def cast_weight() -> int:
    """Return the bytes per weight of the sharded KL reference, which is cast."""
    return FROZEN if os.environ.get("ACCELERATE_MIXED_PRECISION", "no") == "no" else HALF


@dataclass(frozen=True, slots=True)
class Work:
    """The state that one device holds, and the rows that it processes at once."""

    devices: int
    """Devices that share the state by FSDP, if several."""
    rows: int
    """Rows of a forward pass, of `prompt` and `response` tokens; without effect under a `budget`."""
    prompt: int
    response: int
    cached: int
    """Tokens in the KV cache of a sampler in transformers."""
    reference: bool
    """True if a frozen copy of the model is the reference of a KL divergence."""
    sampler: Sampler
    off_policy: bool = False
    """True if the sampler keeps weights of its own while the policy is trained."""
    reserved: int = 0
    """Bytes that vLLM's engine on this device takes for itself."""
    sleeps: bool = False
    """True if the engine takes them only while it samples (`enable_sleep_mode`)."""
    budget: int | None = None
    """The most tokens of a forward pass of packed rows (`rl.token_budget`); None pads `rows` rows."""
    masked: bool = True
    """True if packed rows are kept apart by a mask of all pairs of tokens, as torch's attention does it."""

    @property
    def longest(self) -> int:
        """Tokens of the longest row, which gets a pass of its own if it exceeds the budget."""
        return self.prompt + self.response

    @property
    def tokens(self) -> int:
        """The most tokens of a forward pass."""
        return self.rows * self.longest if self.budget is None else max(self.budget, self.longest)

    @property
    def scored(self) -> int:
        """The most tokens of a forward pass whose logprobs are computed."""
        return self.rows * self.response if self.budget is None else max(self.budget, self.response)

    @property
    def pairs(self) -> int:
        """Pairs of tokens of the mask of packed rows; 0 without one. A longer row is alone and has none."""
        return self.budget**2 if self.budget is not None and self.masked else 0


Phase = Literal["throughout", "sampling", "scoring without gradients", "training"]
"""The parts of a generation batch. Memory of the first is held in all of them."""


def device_bytes(shape: Shape, work: Work) -> dict[Phase, dict[str, int]]:
    """Return an estimate by phase and part for one device, with rows of full length.

    `tests/training/planning/test_memory.py` compares the parts with what torch allocates for a small model.
    Activations are in bfloat16 and kept at layer boundaries only (gradient checkpointing). CUDA's context,
    the communication buffers of NCCL and fragmentation are not counted.
    """
    trained, devices = shape.trained, work.devices
    shared = ", sharded" if devices > 1 else ""
    # Under LoRA the model without its adapter is the reference.
    reference = work.reference and shape.adapter is None
    phases: dict[Phase, dict[str, int]] = {
        "throughout": {
            f"weights, float32{shared}": FROZEN * shape.parameters // devices,
            f"adapter, float32{shared}": 4 * (shape.adapter or 0) // devices,
            f"Adam's moments, float32{shared}": 8 * trained // devices,
            **(_reference_bytes(shape, devices) if reference else {}),
            **({} if work.sleeps else _sampler_bytes(shape, work)),
        },
        "sampling": {
            **(_sampler_bytes(shape, work) if work.sleeps else {}),
            "KV cache, float32": FROZEN * shape.cached * work.cached if work.sampler == "transformers" else 0,
        },
        "scoring without gradients": {
            **(_gathered_units(shape) if devices > 1 else {}),
            "activations of one layer": work.tokens * _passing(shape),
            **_mask(work),
            "output layer, one tile of logits": _tile(shape, work) + _hidden(shape, work),
        },
        "training": {
            f"gradients, float32{shared}": 4 * trained // devices,
            **(_gathered_units(shape) | _unsharded_gradients(shape) if devices > 1 else {}),
            **_activations(shape, work),
            **_mask(work),
        },
    }
    return {phase: {part: size for part, size in parts.items() if size} for phase, parts in phases.items()}


def largest(phases: Mapping[Phase, Mapping[str, int]]) -> tuple[Phase, int]:
    """Return the phase that takes most memory, and its bytes, those held throughout included."""
    held = sum(phases["throughout"].values())
    sizes = {phase: held + sum(parts.values()) for phase, parts in phases.items() if phase != "throughout"}
    worst = max(sizes, key=lambda phase: sizes[phase])
    return worst, sizes[worst]


def _reference_bytes(shape: Shape, devices: int) -> dict[str, int]:
    if devices == 1:
        return {"KL reference, float32": FROZEN * shape.parameters}
    return {"KL reference, bfloat16, sharded": HALF * shape.parameters // devices}


def _gathered_units(shape: Shape) -> dict[str, int]:
    # The reference has the units of the policy. The next layer is gathered while one computes, and each is
    # copied out of the buffer it arrives in.
    return {
        "embedding and output layer gathered, bfloat16": HALF * shape.root,
        "two layers gathered, bfloat16": 2 * HALF * shape.layer,
    }


def _unsharded_gradients(shape: Shape) -> dict[str, int]:
    trained = shape.root + shape.layer if shape.adapter is None else 0
    return {"gradients before they are sharded, bfloat16": HALF * trained}


def _activations(shape: Shape, work: Work) -> dict[str, int]:
    """Return the activations of a forward and backward pass.

    Per token, a layer of a Llama-like model saves 16 bytes per element of the hidden state (two norms in
    float32, their rounded results and the inputs of the projections), 14 per element of queries and of keys
    (their norms, rotation and attention), and 8 per element of the MLP, whose gradients take 4 more.
    """
    tokens = work.tokens
    layer = 16 * shape.hidden + 14 * (shape.queries + shape.keys) + 12 * shape.intermediate
    # The gradients of the output layer are summed in float32, of the hidden states and of the weight.
    whole = FROZEN * shape.vocabulary * shape.hidden if shape.adapter is None else 0
    head = _tile(shape, work) + 3 * _hidden(shape, work) + whole
    return {
        "activations kept between layers": HALF * tokens * shape.hidden * shape.layers,
        # Not both at once: the output layer's backward pass ends before that of the last layer begins.
        "one layer or the output layer, whichever is larger": max(tokens * layer, head),
    }


def _passing(shape: Shape) -> int:
    """Return the bytes per token that one layer needs at once in a pass without gradients."""
    return HALF * (2 * shape.hidden + 3 * shape.intermediate)


def _hidden(shape: Shape, work: Work) -> int:
    """Return the bytes of the last hidden states of the tokens that are scored."""
    return HALF * work.scored * shape.hidden


def _tile(shape: Shape, work: Work) -> int:
    return HALF * min(work.scored, TILE_TOKENS) * TILE_WORDS


def _mask(work: Work) -> dict[str, int]:
    # One byte a pair, which torch's attention turns into the type of the queries, bfloat16.
    return {"mask of packed rows": (1 + HALF) * work.pairs}


def _sampler_bytes(shape: Shape, work: Work) -> dict[str, int]:
    """Return what the sampler holds on this device: vLLM's engine, or a copy of weights that are sharded or
    trained meanwhile.
    """
    if work.sampler == "vllm":
        return {"vLLM's engine (gpu_memory_utilization)": work.reserved}
    if work.sampler == "transformers" and (work.devices > 1 or work.off_policy):
        return {"the sampler's weights, float32, whole": FROZEN * shape.parameters}
    return {}


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


def skeleton(model: str) -> Any:
    """Build the model without its weights."""
    import torch
    from transformers import AutoModelForCausalLM

    config = config_of(model)
    # The meta device builds all layers without allocating their weights.
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def config_of(model: str) -> Any:
    """Read the configuration of a model folder or hub id, of an adapter that of the model below it."""
    from transformers import AutoConfig

    folder = resolve_model(model)
    return AutoConfig.from_pretrained(base_of(Path(folder)) or folder, trust_remote_code=False)


def _count(parameters: Iterable[Any]) -> int:
    return sum(parameter.numel() for parameter in parameters)
