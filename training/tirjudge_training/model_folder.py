"""Model folders: load a model, write a model that `tirjudge judge --model` accepts, and LoRA adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from pydantic import Field

from tirjudge.generation.base import GeneratorFailed
from tirjudge.generation.local.loading import merged, with_adapter
from tirjudge.generation.model_files import CONFIG as ADAPTER_CONFIG
from tirjudge.generation.model_files import Adapter, tokenizer_of
from tirjudge.models import resolve_model, weights_sha256
from tirjudge.models.machine import complete
from tirjudge.models.resolve import NOTE_FILE, BaseNote, ModelNote, model_folder, read_note
from tirjudge.storage.durable_files import write_atomically
from tirjudge_environments.types import FrozenModel
from tirjudge_training.distributed.checkpoints import adapter_weights, full_weights, on_the_first
from tirjudge_training.distributed.device import PLAIN, Attention, Dtype, Kernels, current_device
from tirjudge_training.distributed.fsdp import whole_weights, without_weights
from tirjudge_training.distributed.processes import ALONE, Processes

ADAPTER_WEIGHTS = "adapter_model.safetensors"
"""The file of an adapter folder with its weights, as PEFT names it."""


class LoraConfig(FrozenModel):
    """The adapter of a training stage. Defaults are ours."""

    rank: int = Field(default=16, gt=0)
    alpha: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers with an adapter, `q_proj`, ...; empty means all except the output layer."""
    merge: bool = True
    """Write whole models with the adapter merged into their weights. False writes adapter folders, and a
    later stage goes on with the adapter of its start instead of putting a new one on top."""

    def adapter(self) -> Any:
        """Return PEFT's configuration, without dropout, so that sampler and trainer have the same policy."""
        from peft import LoraConfig as PeftLora

        return PeftLora(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=0.0,
            target_modules=list(self.targets) or "all-linear",
            task_type="CAUSAL_LM",
        )


def load(
    path: str | Path, device: str | None = None, *, dtype: Dtype = "float32", weights: bool = True
) -> tuple[Any, Any]:
    """Load model and tokenizer of a folder, a hub id or a short name, without remote code.

    `device` None is the device of this process, and `dtype` the type of the weights. A LoRA adapter, as
    checkpoints of LoRA training hold one, is merged into its model. Without `weights` the model only has
    their names and shapes, for a process that others pass the weights to.
    """
    base = base_of(Path(path))
    if not weights:
        return without_weights(path if base is None else base, dtype, "sdpa"), load_tokenizer(path)
    with whole_weights():
        model = _base_model(path if base is None else base, dtype)
        if base is not None:
            model = merged(model, Path(path))
    return model.to(device or current_device().device), load_tokenizer(path)


def load_trainable(
    start: str | Path,
    lora: LoraConfig | None,
    *,
    dtype: Dtype = "float32",
    kernels: Kernels = PLAIN,
    processes: Processes = ALONE,
) -> Any:
    """Load the model for training; with unmerged `lora`, training continues the adapter in folder `start`.

    Returns a PEFT model if an adapter is continued (add no further adapter), else a plain model. If the
    trainer will shard the weights (FSDP), only the first of `processes` loads the weights, so that host
    memory holds one copy; the trainer sends the weights to the others while sharding.
    """
    base = base_of(Path(start))
    sent = processes.share_weights and processes.rank > 0
    loading = without_weights if sent else _base_model
    model = loading(start if base is None else base, dtype, kernels.attention)
    kernels.apply(model)
    if base is None:
        return model
    if lora is None or lora.merge:
        # A process without weights merges nothing, and is sent merged weights.
        # PEFT has frozen the merged weights.
        return model if sent else merged(model, Path(start)).requires_grad_(True)
    return with_adapter(model, start, trainable=True)


def name_base(model: Any, start: str | Path) -> None:
    """Have checkpoints of LoRA training name the base model's folder, which PEFT reads when it saves them."""
    if hasattr(model, "peft_config"):
        model.peft_config["default"].base_model_name_or_path = resolve_model(base_name(start))


def base_name(start: str | Path) -> str:
    """Return the full model below an adapter, or the model itself, in the words of the recipe."""
    config = Path(start) / ADAPTER_CONFIG
    if not config.is_file():
        return str(start)
    return str(json.loads(config.read_text(encoding="utf-8"))["base_model_name_or_path"])


def network(model: Any) -> Any:
    """Return the causal LM itself, with any adapter that PEFT added inside."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def load_tokenizer(path: str | Path) -> Any:
    """Load the tokenizer of a model; an adapter folder without one uses the base model's."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer_of(resolve_model(str(path))))


def save(
    folder: Path,
    model: Any,
    *,
    start: str,
    lora: LoraConfig | None = None,
    note: Mapping[str, Any] = {},
    processes: Processes = ALONE,
    half: bool = False,
) -> None:
    """Write a model folder, with the tokenizer and the note of the model `start`; an adapter is merged.

    With unmerged `lora` the folder holds the adapter alone, see `save_adapter`. `note` overrides fields of
    the note, so that judging uses the prompts that training used. `half` writes bfloat16.
    Every process must call this, since each may hold a part of the weights; the first one writes.
    """
    if lora is not None and not lora.merge:
        weights = on_the_first(model, processes, adapter_weights)
        processes.first(lambda: save_adapter(folder, model, weights, start, note))
        return
    # Adapters are merged and shards gathered here, so the folder is a plain model.
    weights = on_the_first(model, processes, _rounded if half else full_weights)
    processes.first(lambda: _write(folder, model, weights, start, note))


def _rounded(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and tensor of every weight in bfloat16, one at a time; see `full_weights`."""
    import torch

    return ((name, weight.to(torch.bfloat16)) for name, weight in full_weights(model))


def save_adapter(
    folder: Path, model: Any, weights: Mapping[str, Any], start: str, note: Mapping[str, Any]
) -> None:
    """Write an adapter folder as PEFT loads it: configuration, bfloat16 weights, and the note."""
    _write_adapter(folder, network(model).peft_config["default"], weights, start, note)


def _write_adapter(
    folder: Path, config: Any, weights: Mapping[str, Any], start: str, note: Mapping[str, Any]
) -> None:
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    base = base_name(start)
    config = copy(config)
    config.base_model_name_or_path, config.inference_mode = base, True
    # PEFT writes sets, whose order differs between runs.
    config.target_modules = sorted(config.target_modules)
    config.save_pretrained(folder)
    small = {name: weight.to(torch.bfloat16).contiguous() for name, weight in sorted(weights.items())}
    save_file(small, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    trained_on = BaseNote(name=base, sha256=weights_sha256(resolve_model(base)))
    _write_note(folder, start, {**note, "base": trained_on})


def _write(folder: Path, model: Any, weights: dict[str, Any], start: str, note: Mapping[str, Any]) -> None:
    model = network(model)
    model.config.use_cache = True  # trainers turn it off
    model.save_pretrained(folder, state_dict=weights)
    load_tokenizer(start).save_pretrained(folder)
    _write_note(folder, start, note)


def adopt(folder: Path, *, start: str, note: Mapping[str, Any]) -> None:
    """Give a model folder that another trainer wrote the tokenizer and the note of the model `start`."""
    load_tokenizer(start).save_pretrained(folder)
    _write_note(folder, start, note)


def _write_note(folder: Path, start: str, note: Mapping[str, Any]) -> None:
    """Write the note of `start` with the given fields, if there is anything to note."""
    known = {name: value for name, value in note.items() if name in ModelNote.model_fields}
    # Whether another judge's guesses are worth keeping is not known from its start.
    given = {"undecided": "guess"} | {k: v for k, v in known.items() if v is not None}
    written = read_note(start).model_copy(update=given)
    fields = written.model_dump(exclude_defaults=True)
    if fields or (Path(start) / NOTE_FILE).is_file():
        write_atomically(folder / NOTE_FILE, json.dumps(fields, indent=2) + "\n")


def base_of(folder: Path) -> str | None:
    """Return the base model of the adapter in a folder; None if the folder holds a full model.

    Raises GeneratorFailed if the base model does not exist.
    """
    adapter = Adapter.of(folder)
    return None if adapter is None else adapter.base


def _base_model(name: str | Path, dtype: Dtype, attention: Attention = "sdpa") -> Any:
    from transformers import AutoModelForCausalLM

    folder = resolve_model(str(name))
    if not Path(folder).exists() and Adapter.of(found := Path(model_folder(folder))):
        raise GeneratorFailed(f"{name} is an adapter, which training takes as a folder: name it as {found}")
    # The other format of weights is pickle, which may run code when a file is loaded.
    loaded = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation=attention, use_safetensors=True, output_loading_info=True
    )
    return complete(loaded)
