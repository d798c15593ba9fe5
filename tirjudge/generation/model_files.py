"""Adapters (LoRA) in folders, as PEFT writes them: weights that belong to a model which lies elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tirjudge.generation.base import GeneratorFailed
from tirjudge_environments.chat_encoder import ChatEncoder

CONFIG = "adapter_config.json"
"""The file that tells an adapter's folder from a model's."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """What its folder says of it."""

    base: str
    """The model that it belongs to: a folder or hub id."""
    rank: int

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """None for the folder of a whole model. Raises GeneratorFailed for an adapter without its model."""
        if not (folder / CONFIG).is_file():
            return None
        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            adapter = cls(str(config["base_model_name_or_path"]), int(config["r"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GeneratorFailed(f"{folder / CONFIG} does not tell of a LoRA adapter: {error}") from error
        if _is_path(adapter.base) and not Path(adapter.base).is_dir():
            raise GeneratorFailed(
                f"{str(folder)!r} is an adapter of the model {adapter.base!r}, and there is no such folder: "
                "start where that path leads to it, or take the `model` folder that training left"
            )
        return adapter


def _is_path(model: str) -> bool:
    """Whether it cannot be a hub id, which is `owner/name` or `name`."""
    return model.startswith((".", "/", "~")) or model.count("/") > 1


def load_encoder(path: str) -> ChatEncoder:
    """The model's generation config, where it has one, also says which tokens end a turn.

    None of the repository's own code is run. Raises GeneratorFailed.
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
    except OSError:  # many models have none
        ends = None
    return ChatEncoder(loaded, ends=[ends] if isinstance(ends, int) else ends or ())
