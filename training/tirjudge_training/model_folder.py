"""Model folders: load a model, write one that `tirjudge judge --model` accepts, and merge LoRA adapters."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tirjudge.generation.model_files import Adapter
from tirjudge.model_folder import NOTE_FILE, read_note
from tirjudge.storage.run_folder import write_atomically
from tirjudge_environments import Prompt
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_training.distributed.checkpoints import on_the_first
from tirjudge_training.distributed.device import current_device
from tirjudge_training.distributed.processes import ALONE, Processes


class LoraConfig(BaseModel):
    """The adapter of a training stage, merged into the model that the stage writes. Defaults are ours."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=16, gt=0)
    alpha: float = Field(default=32.0, gt=0)
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Names of the linear layers with an adapter, `q_proj`, ...; empty means all except the output layer."""

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


def load(path: str | Path, device: str | None = None) -> tuple[Any, Any]:
    """Load model and tokenizer of a folder or hub id: in float32, from safetensors, without remote code.

    `device` None is the device of this process. A LoRA adapter, as checkpoints of LoRA training hold one, is
    merged into its model.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = base_of(Path(path))
    model = AutoModelForCausalLM.from_pretrained(
        base or path, dtype="float32", attn_implementation="sdpa", use_safetensors=True
    )
    if base is not None:
        model = merged(model, Path(path))
    return model.to(device or current_device().device), AutoTokenizer.from_pretrained(path)


def prompt_tokens(path: str | Path, *, enable_thinking: bool | None = None) -> Callable[[Prompt], int]:
    """Return a function that counts the tokens of a judge's prompt for the model of a folder or hub id."""
    from transformers import AutoTokenizer

    encoder = ChatEncoder(AutoTokenizer.from_pretrained(path), enable_thinking=enable_thinking)
    return lambda prompt: len(encoder.prompt(prompt))


def save(
    folder: Path,
    model: Any,
    *,
    start: str,
    enable_thinking: bool | None = None,
    processes: Processes = ALONE,
) -> None:
    """Write a model folder, with the tokenizer and the note of the model `start`; an adapter is merged.

    The note records `enable_thinking`, so that judging uses the prompts that training used.
    Every process must call this, since each may hold a part of the weights; the first one writes.
    """
    # Adapters are merged and shards gathered here, so the folder is always a plain model.
    weights = on_the_first(model, processes)
    processes.first(lambda: _write(folder, model, weights, start, enable_thinking))


def _write(
    folder: Path, model: Any, weights: dict[str, Any], start: str, enable_thinking: bool | None
) -> None:
    from transformers import AutoTokenizer

    model.config.use_cache = True  # trainers turn it off
    model.save_pretrained(folder, state_dict=weights)
    AutoTokenizer.from_pretrained(start).save_pretrained(folder)
    if enable_thinking is not None:
        note = read_note(start).model_copy(update={"enable_thinking": enable_thinking})
        text = json.dumps(note.model_dump(exclude_defaults=True), indent=2)
        write_atomically(folder / NOTE_FILE, text + "\n")
    elif (Path(start) / NOTE_FILE).is_file():
        shutil.copyfile(Path(start) / NOTE_FILE, folder / NOTE_FILE)


def merged(model: Any, folder: Path) -> Any:
    """Return the base model with the adapter in `folder` merged into its weights."""
    from peft import PeftModel

    with warnings.catch_warnings():
        # PEFT 0.21 still uses the name that transformers has deprecated.
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing` is deprecated")
        return PeftModel.from_pretrained(model, folder).merge_and_unload()


def base_of(folder: Path) -> str | None:
    """Return the base model of the adapter in a folder; None if the folder holds a full model.

    Raises GeneratorFailed if the base model does not exist.
    """
    adapter = Adapter.of(folder)
    return None if adapter is None else adapter.base
