"""The size of a model and the memory that its training takes at least, from its configuration alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tirjudge.console_text import first_line
from tirjudge.models import resolve_model
from tirjudge.models.resolve import hub_files
from tirjudge_training.distributed.processes import Sharding, launched_processes
from tirjudge_training.model_folder import LoraConfig, base_of
from tirjudge_training.recipe import ModelConfig
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.run.lora_layers import require_start, require_targets
from tirjudge_training.weight_sync.base import Sampler

SHAPES = Path(__file__).with_name("model_shapes.json")
"""The parts of published config.json files that decide on sizes, of the models that shipped recipes train."""
TRAINED = 16
"""Bytes per trained parameter: weight, gradient and Adam's two moments, all in float32."""
MOMENTS = 8
"""Bytes of Adam's two moments per trained parameter."""
FROZEN = 4
"""Bytes per value in float32: per frozen parameter, if the recipe states no other type."""
HALF = 2
"""Bytes per value in bfloat16."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model that its memory depends on."""

    parameters: int
    vocabulary: int
    adapter: int | None = None
    """Parameters of a LoRA adapter, the only ones trained; None if all weights are trained."""
    weight: int = FROZEN
    """Bytes per weight under an adapter, in a KL reference, in a copy that samples and in a model folder."""

    @property
    def trained(self) -> int:
        """Number of parameters that are trained."""
        return self.parameters if self.adapter is None else self.adapter


def shape(
    model: str, lora: LoraConfig | None = None, dtype: str | None = None, *, planned: bool = False
) -> Shape:
    """Read the shape of a model folder or hub id, of an adapter that of the model below it.

    `dtype` is the type of the weights, see `ModelConfig`. `planned` also takes the published configurations
    of the recipes' models, which need not be here. Raises OSError if it is missing, and ValueError if it is
    unknown or lacks the target layers of `lora`.
    """
    config = config_of(model, planned=planned)
    network = skeleton(config)
    found = Shape(
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        vocabulary=config.get_text_config().vocab_size,
        weight=HALF if dtype == "bfloat16" else FROZEN,
    )
    if lora is None:
        return found
    from peft import inject_adapter_in_model

    require_targets(network, lora, model)
    network = inject_adapter_in_model(lora.adapter(), network)
    return replace(found, adapter=sum(p.numel() for p in network.parameters() if p.requires_grad))


@contextmanager
def model_errors(base: str) -> Iterator[None]:
    """Raise BadRecipe, in one line that names the model, where a run's model cannot be found or read."""
    if base.startswith((".", "/", "~")) and not Path(base).expanduser().exists():
        raise BadRecipe(f"no model {base!r}: there is no such file or folder")
    try:
        yield
    except BadRecipe:
        raise
    except (OSError, ValueError) as error:
        raise BadRecipe(
            f"no model {base!r}, neither a folder with one nor a hub id: {first_line(error)}"
        ) from None


def require_model(base: str) -> None:
    """Raise BadRecipe if a run's model is neither here nor on the hub, after at most one attempt there.

    The libraries that load it later would try for minutes.
    """
    with model_errors(base):
        folder = resolve_model(base)
        if not Path(folder).exists():
            hub_files(folder, ("*config.json",))


def trained_shape(base: str, lora: LoraConfig | None, dtype: str | None = None) -> Shape:
    """Read the shape of what a run trains; raises BadRecipe if there is no model, or an adapter misfits."""
    with model_errors(base):
        network = skeleton(config_of(base))
    require_start(network, base, lora)
    return shape(base, lora, dtype)


def launched_bytes(
    shape: Shape, *, reference: bool = False, sampler: Sampler = "transformers", off_policy: bool = False
) -> int:
    """Return the memory that one of the launched processes needs for training, see `training_bytes`."""
    shards = launched_shards()
    rounded = os.environ.get("ACCELERATE_MIXED_PRECISION", "no") != "no"
    return training_bytes(
        shape, shards=shards, rounded=rounded, reference=reference, sampler=sampler, off_policy=off_policy
    )


def launched_shards() -> int:
    """Return the number of launched processes that share the state of training; 1 if each has all of it."""
    return launched_processes() if Sharding.launched() is Sharding.FSDP else 1


def training_bytes(
    shape: Shape, *, shards: int, rounded: bool, reference: bool, sampler: Sampler, off_policy: bool = False
) -> int:
    """Return the memory that training needs on each of the devices that share the state, for any batch size.

    Activations and an engine of vLLM come on top, see `beside_engine_bytes`. `rounded` is True if a sharded
    KL reference is in bfloat16.
    """
    # Under LoRA the base model is frozen, and it is also the KL reference with the adapter turned off.
    frozen = shape.parameters if reference or shape.adapter is not None else 0
    weight = HALF if rounded and shards > 1 and shape.adapter is None else shape.weight
    state = TRAINED * shape.trained + weight * frozen
    copied = sampler == "transformers" and (off_policy or shards > 1)
    return state // shards + (shape.weight * shape.parameters if copied else 0)


def beside_engine_bytes(needed: int, shape: Shape, *, shards: int, offloaded: bool) -> int:
    """Return what is left of `training_bytes` on each device while an engine in the same process samples.

    There are no gradients then, and no moments of Adam where these are `offloaded` to the host.
    """
    return needed - (FROZEN + MOMENTS * offloaded) * shape.trained // shards


def activation_bytes(model: ModelConfig, tokens: int) -> int | None:
    """Return the bytes that a forward pass of one row keeps for the backward pass, without logits.

    The pass runs on torch's meta device, which computes shapes alone; None if the model cannot run there.
    Only `eager` attention keeps its scores, `[heads, tokens, tokens]`.
    """
    import torch

    config = config_of(model.base, planned=True)
    network = skeleton(config, dtype=torch.float32)
    if model.lora is not None:
        from peft import inject_adapter_in_model

        network = inject_adapter_in_model(model.lora.adapter(), network)
    weights = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    heads, kept = config.get_text_config().num_attention_heads, dict[int, Any]()

    def keep(tensor: Any) -> Any:
        scores = tuple(tensor.shape[-2:]) == (tokens, tokens) and tensor.numel() == heads * tokens**2
        storage = tensor.untyped_storage()
        if storage._cdata not in weights and (model.attn_implementation == "eager" or not scores):
            kept[storage._cdata] = storage
        return tensor

    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    mask = torch.zeros(1, 1, tokens, tokens, device="meta")
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            network.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    except (NotImplementedError, RuntimeError):  # such as experts that depend on the tokens
        return None
    return sum(storage.nbytes() for storage in kept.values())


def gib(size: int) -> str:
    """Format bytes as GiB, or as MiB below half a GiB."""
    return f"{size / 2**30:,.1f} GiB" if size >= 2**29 else f"{size / 2**20:,.1f} MiB"


def skeleton(config: Any, **options: Any) -> Any:
    """Build the model of a configuration without its weights."""
    import torch
    from transformers import AutoModelForCausalLM

    # The meta device builds all layers without allocating their weights.
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False, **options)


def config_of(model: str, *, planned: bool = False) -> Any:
    """Read the configuration of a model folder or hub id, of an adapter that of the model below it.

    See `shape` for `planned`.
    """
    from transformers import AutoConfig

    folder = resolve_model(model)
    folder = base_of(Path(folder)) or folder
    if planned and not Path(folder).exists():
        published = json.loads(SHAPES.read_text(encoding="utf-8"))
        if folder in published:
            return AutoConfig.for_model(**published[folder])
        folder = hub_files(folder, ("config.json",))
    return AutoConfig.from_pretrained(folder, trust_remote_code=False)
