"""Files of a model folder: the config of a LoRA adapter (PEFT), and the tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tirjudge.generation.base import GeneratorFailed
from tirjudge_environments.tokenization import ChatEncoder

CONFIG = "adapter_config.json"
"""The file that only an adapter's folder has."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter in a folder, as PEFT writes it."""

    base: str
    """Its base model: a folder or hub id."""
    rank: int

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """Read the adapter in a folder; None if the folder holds a full model.

        Raises GeneratorFailed for an unreadable config, and for a base model whose folder does not exist.
        """
        if not (folder / CONFIG).is_file():
            return None
        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            adapter = cls(str(config["base_model_name_or_path"]), int(config["r"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GeneratorFailed(f"{folder / CONFIG} does not describe a LoRA adapter: {error}") from error
        if _is_path(adapter.base) and not Path(adapter.base).is_dir():
            raise GeneratorFailed(
                f"{str(folder)!r} is a LoRA adapter of the model {adapter.base!r}, but there is no such "
                "folder: start in the folder from which that path is valid, or use the `model` folder "
                "that training wrote"
            )
        return adapter


def _is_path(model: str) -> bool:
    """Return True if it cannot be a hub id, which is `owner/name` or `name`."""
    return model.startswith((".", "/", "~")) or model.count("/") > 1


def load_encoder(path: str, *, enable_thinking: bool | None = None) -> ChatEncoder:
    """Load the tokenizer of a model's folder or hub id as an encoder; `enable_thinking`: see `ChatEncoder`.

    The tokens that end a turn are also read from the model's generation config, if it has one. No code of the
    repository is run. Raises GeneratorFailed, and ValueError for a chat template that cannot be used.
    """
    try:
        from transformers import AutoTokenizer, GenerationConfig
    except ImportError as error:
        raise GeneratorFailed(f"a tokenizer needs `pip install tirjudge[local]`: {error}") from error
    try:
        loaded = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise GeneratorFailed(f"cannot load the tokenizer {path!r}: {reason}") from error
    try:
        ends = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:  # many models have no generation config
        ends = None
    named = [ends] if isinstance(ends, int) else ends or ()
    return ChatEncoder(loaded, ends=named, enable_thinking=enable_thinking)
