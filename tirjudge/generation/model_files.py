"""Files of a model folder: the config of a LoRA adapter (PEFT), and the tokenizer."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from tirjudge.console_text import first_line
from tirjudge.generation.base import GeneratorFailed
from tirjudge.models import ModelUnavailable, resolve_model, weights_sha256
from tirjudge.models.machine import TOKENIZER, require
from tirjudge.models.resolve import read_note
from tirjudge.storage.settings_text import json_file
from tirjudge_environments.registry import first_fault
from tirjudge_environments.tokenization import ChatEncoder

logger = logging.getLogger(__name__)

CONFIG = "adapter_config.json"
"""The file that only an adapter's folder has."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


_Rank = Annotated[int, Field(strict=True, ge=1, le=8192)]
_Alpha = Annotated[float, Field(allow_inf_nan=False)]
_Module = Annotated[str, StringConstraints(pattern=r"^\^?[\w.\\-]+\$?$", max_length=300)]
"""The name of a module. PEFT takes it as a regular expression, which may take longer than anyone waits."""


class _Lora(BaseModel):
    """The keys of an adapter's config on which memory, time and the code that runs depend."""

    model_config = ConfigDict(extra="ignore")

    peft_type: Literal["LORA"] = "LORA"
    base_model_name_or_path: Annotated[
        str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=4096)
    ]
    r: _Rank
    lora_alpha: _Alpha = 8.0
    rank_pattern: dict[_Module, _Rank] | None = None
    alpha_pattern: dict[_Module, _Alpha] | None = None
    target_modules: Annotated[str | list[str] | None, Field(max_length=10_000)] = None
    modules_to_save: list[_Module] | None = None
    layers_pattern: _Module | list[_Module] | None = None
    layer_replication: None = None
    """It repeats layers any number of times."""
    megatron_config: None = None
    """It imports a module that the config names."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter in a folder, as PEFT writes it."""

    base: str
    """Its base model, as `from_pretrained` takes it: a folder or hub id."""
    rank: int

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """Read the adapter in a folder; None if the folder holds a full model.

        The base that its config names may be a short name or a GGUF file, see `resolve_model`. Raises
        GeneratorFailed for an unreadable config, for a base model that does not exist, and for weights that
        are not in safetensors: reading others may run code.
        """
        if not (folder / CONFIG).is_file():
            return None
        if (folder / "adapter_model.bin").exists() and not (folder / ADAPTER_WEIGHTS).exists():
            raise GeneratorFailed(f"{str(folder)!r} has no {ADAPTER_WEIGHTS}: adapter_model.bin is not read")
        try:
            lora = _Lora.model_validate(json_file(folder / CONFIG))
        except (OSError, ValueError) as error:
            reason = first_fault(error) if isinstance(error, ValidationError) else error
            raise GeneratorFailed(f"{folder / CONFIG} describes no plain LoRA adapter: {reason}") from error
        named = lora.base_model_name_or_path
        # A hub id is `owner/name` or `name`.
        is_path = named.startswith((".", "/", "~")) or named.count("/") > 1
        if is_path and not Path(named).exists():
            raise GeneratorFailed(
                f"{str(folder)!r} is a LoRA adapter of the model {named!r}, but there is no such "
                "folder: start in the folder from which that path is valid, or use the `model` folder "
                "that training wrote"
            )
        try:
            return cls(resolve_model(named), lora.r)
        except ModelUnavailable as error:
            raise GeneratorFailed(f"{str(folder)!r} is a LoRA adapter of {named!r}: {error}") from error


def weights_bytes(folder: str) -> int:
    """Return the size of the safetensors files in a model folder; 0 for a hub id."""
    return sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))


def tokenizer_of(path: str) -> str:
    """Return where the tokenizer of a model is: an adapter without its own has its base's."""
    folder = Path(path)
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return path
    adapter = Adapter.of(folder)
    return path if adapter is None else adapter.base


def warn_of_other_base(folder: str, base: str) -> None:
    """Warn if the adapter was trained on another base: the adapter's numbers hold for that base."""
    trained_on = read_note(folder).base
    if trained_on is None:
        return
    found = weights_sha256(base)
    if found != trained_on.sha256:
        logger.warning(
            "%s was trained on the base %s with sha256 %s…, and this one has %s: its numbers are unmeasured",
            folder,
            trained_on.name,
            trained_on.sha256[:16],
            f"{found[:16]}…" if found else "an unknown one",
        )


@contextmanager
def load_failures(path: str) -> Iterator[None]:
    """Raise GeneratorFailed, in one line, for whatever the libraries raise on the files of strangers."""
    try:
        yield
    except ModelUnavailable as error:
        raise GeneratorFailed(str(error)) from error
    except GeneratorFailed:
        raise
    except Exception as error:
        raise GeneratorFailed(f"cannot load the model {path!r}: {first_line(error)}") from error


def load_encoder(path: str, *, enable_thinking: bool | None = None) -> ChatEncoder:
    """Load the tokenizer of a model as an encoder; `enable_thinking`: see `ChatEncoder`.

    The model is a folder, which may hold an adapter, a hub id, or what else `resolve_model` accepts.
    The tokens that end a turn are also read from the generation config of the model, or of the base of an
    adapter, if it has one. No code of the repository is run. Raises GeneratorFailed, and ValueError for a
    chat template that cannot be used.
    """
    with load_failures(path):
        require("a tokenizer", TOKENIZER)
    from transformers import AutoTokenizer, GenerationConfig

    try:
        path = configured = resolve_model(path)
        with suppress(GeneratorFailed):  # the base may be only on the machine of an endpoint
            adapter = Adapter.of(Path(path))
            configured = adapter.base if adapter else path
        loaded = AutoTokenizer.from_pretrained(tokenizer_of(path), trust_remote_code=False)
        try:
            ends = GenerationConfig.from_pretrained(configured).eos_token_id
        except OSError:  # many models have no generation config
            ends = None
    except GeneratorFailed:
        raise
    except Exception as error:  # the libraries fail in any way on files of strangers
        raise GeneratorFailed(f"cannot load the tokenizer {path!r}: {first_line(error)}") from error
    named = [ends] if isinstance(ends, int) else ends or ()
    return ChatEncoder(loaded, ends=named, enable_thinking=enable_thinking)
