"""Model folders: loading a model from one, and writing one that `tirjudge judge --model` accepts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tirjudge.embedded import NOTE_FILE
from tirjudge_environments import Prompt
from tirjudge_environments.tokenization import ChatEncoder
from tirjudge_training import lora
from tirjudge_training.computing import here
from tirjudge_training.processes import ALONE, Processes
from tirjudge_training.weights import on_the_first


def load(path: str | Path, device: str | None = None) -> tuple[Any, Any]:
    """Load model and tokenizer of a folder or hub id: in float32, from safetensors, without remote code.

    `device` None is the device of this process. A LoRA adapter, as checkpoints of LoRA training hold one, is
    merged into its model.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = lora.base_of(Path(path))
    model = AutoModelForCausalLM.from_pretrained(
        base or path, dtype="float32", attn_implementation="sdpa", use_safetensors=True
    )
    if base is not None:
        model = lora.merged(model, Path(path))
    return model.to(device or here().device), AutoTokenizer.from_pretrained(path)


def prompt_tokens(path: str | Path) -> Callable[[Prompt], int]:
    """Return a function that counts the tokens of a judge's prompt for the model of a folder or hub id."""
    from transformers import AutoTokenizer

    encoder = ChatEncoder(AutoTokenizer.from_pretrained(path))
    return lambda prompt: len(encoder.prompt(prompt))


def save(folder: Path, model: Any, *, start: str, processes: Processes = ALONE) -> None:
    """Write a model folder, with the tokenizer and the note of the model `start`; an adapter is merged.

    Every process must call this, since each may hold a part of the weights; the first one writes.
    """
    weights = on_the_first(model, processes)
    processes.first(lambda: _write(folder, model, weights, start))


def _write(folder: Path, model: Any, weights: dict[str, Any], start: str) -> None:
    from transformers import AutoTokenizer

    model.config.use_cache = True  # trainers turn it off
    model.save_pretrained(folder, state_dict=weights)
    AutoTokenizer.from_pretrained(start).save_pretrained(folder)
    note = Path(start) / NOTE_FILE
    if note.is_file():
        shutil.copyfile(note, folder / NOTE_FILE)
