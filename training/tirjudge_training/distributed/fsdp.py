"""Models whose weights are sharded over the processes (FSDP2): loading, and the KL reference."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from tirjudge.models import resolve_model
from tirjudge_training.distributed.device import Attention, Dtype
from tirjudge_training.distributed.processes import Processes

EFFICIENT = "FSDP_CPU_RAM_EFFICIENT_LOADING"
"""accelerate's variable: with `true` only the first process reads a model's weights, and sharding broadcasts
them from there."""


def set_precision(accelerator: Any) -> None:
    """Let sharded modules compute in bfloat16, but reduce gradients and return outputs in float32.

    accelerate's own policy rounds outputs too. Logprobs with eight bits make small KL divergences 0 or
    negative, and gradients lose more in their sum over processes than in the products. Call it before any
    model is sharded; launches without FSDP or without bfloat16 stay as they are.
    """
    if not accelerator.is_fsdp2 or accelerator.mixed_precision != "bf16":
        return
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    accelerator.state.fsdp_plugin.mixed_precision_policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32
    )


def each_batch_reduced(processes: Processes) -> dict[str, Any]:
    """Return arguments for TRL's configurations that reduce sharded gradients after every micro-batch.

    By default each process adds up the whole gradient of an optimizer step, and shards only the sum: 33 GB
    for 8 B parameters in float32. There are more exchanges so, during the backward passes.
    """
    if not processes.share_weights:
        return {}
    return {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}


@contextmanager
def whole_weights() -> Iterator[None]:
    """Let every process load the weights of all models loaded here, also in a launch that shards models.

    Without `whole_weights`, a model that stays unsharded would lack weights in all processes but one.
    """
    former = os.environ.get(EFFICIENT)
    if former is None:
        yield
        return
    os.environ[EFFICIENT] = "false"
    try:
        yield
    finally:
        os.environ[EFFICIENT] = former


def without_weights(path: str | Path, dtype: Dtype, attention: Attention) -> Any:
    """Build the model of a folder or hub id without memory for its weights, which another process sends."""
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(resolve_model(str(path)), trust_remote_code=False)
    # Buffers that no file contains, such as rotary positions, are computed here, since nobody sends buffers.
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation=attention, trust_remote_code=False
        )
    # accelerate finds the optimizer's tensors again by their addresses, which tensors on the meta device
    # lack.
    model._apply(lambda t: torch.empty((), dtype=t.dtype).expand(t.shape) if t.is_meta else t)
    model.tie_weights()  # each name of a tied weight got a tensor of its own
    return model.eval()


def whole_copy(model: Any, device: str) -> Any:
    """Return a copy of a model on `device`; weights that this process has not loaded are left undefined."""
    copy = deepcopy(model)
    copy._apply(lambda t: t.to(device).contiguous())  # `contiguous` allocates what `without_weights` left out
    return copy


def frozen_copy(model: Any, prepare: Callable[[Any], None]) -> Any:
    """Return a frozen copy of a model under training, which `prepare` is called with.

    TRL would load the folder that the configuration names, which is the base of an adapter that was merged.
    """
    copy = deepcopy(model).eval().requires_grad_(False)
    del copy.forward  # TRL's, which calls the model that it was made for
    prepare(copy)
    return copy


def sharded_reference(model: Any, accelerator: Any, prepare: Callable[[Any], None]) -> Any:
    """Return a frozen copy of an unsharded model, sharded in the units of accelerate.

    TRL would load the reference of the KL divergence in every process and shard it as one unit, so that each
    forward pass gathers the whole model. Where products are computed in bfloat16, the copy is kept in
    bfloat16: FSDP rounds gathered weights in any case. `prepare` is called with the copy before sharding.
    Every process must make this call; the weights come from the first process.
    """
    import torch
    from accelerate.utils.fsdp_utils import fsdp2_prepare_model
    from torch.distributed.fsdp import FSDPModule

    dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else model.dtype

    def without_data(weight: Any) -> Any:
        return torch.nn.Parameter(torch.empty_like(weight, device="meta", dtype=dtype), requires_grad=False)

    # Entries of `memo` take the place of the originals, so that no second copy of the weights is ever made.
    reference = deepcopy(model, {id(weight): without_data(weight) for weight in model.parameters()}).eval()
    del reference.forward  # TRL's method, which calls the original model
    prepare(reference)
    plugin = accelerator.state.fsdp_plugin
    # With it, accelerate would send the copy's weights, which do not exist yet; `_distribute` sends them.
    former, plugin.cpu_ram_efficient_loading = plugin.cpu_ram_efficient_loading, False
    try:
        reference = fsdp2_prepare_model(accelerator, reference)
    finally:
        plugin.cpu_ram_efficient_loading = former
    _distribute(model.state_dict(), reference, first=accelerator.is_main_process)
    reference.tie_weights()
    # FSDP keeps the last unit gathered for a backward pass, which a reference never has.
    units = [module for module in reference.modules() if isinstance(module, FSDPModule)]

    def free(*call: Any) -> None:
        for unit in units:
            unit.reshard()

    reference.register_forward_hook(free)
    return reference


def _distribute(weights: Mapping[str, Any], model: Any, *, first: bool) -> None:
    """Load the weights of the first process into a sharded model without data, one tensor at a time."""
    import torch
    from torch.distributed.tensor import distribute_tensor

    placed = {}
    for name, shard in model.state_dict().items():
        whole = torch.empty(shard.shape, dtype=shard.dtype, device=shard.device_mesh.device_type)
        if first:
            whole.copy_(weights[name])
        # The data of the first process is what every process gets a shard of.
        placed[name] = distribute_tensor(whole, shard.device_mesh, shard.placements)
    model.load_state_dict(placed, assign=True)
