"""Model folders: the digest of their files, the note that training writes, and the embedded model."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tirjudge_environments.registry import first_fault

NOTE_FILE = "tirjudge.json"
MODELS = Path(str(files("tirjudge") / "models"))
"""The folder of the models inside this package."""
_EMBEDDED = {"smol": "adapter_model.safetensors", "mini": "model.safetensors"}
"""Folders of models inside this package, by preference, and the file without which one is not there."""
_BLOCK = 1 << 20
"""Bytes of a weight file that are read at once."""


def weights_digest(folder: str) -> str:
    """Return 16 hexadecimal digits that identify the files in a model's folder.

    The same path may hold other weights later, so a path alone identifies no model. Files in subfolders do
    not count. The digest is empty if `folder` is not a local folder.
    """
    path = Path(folder)
    if not path.is_dir():
        return ""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(file for file in path.iterdir() if file.is_file()):
        digest.update(file.name.encode(errors="surrogatepass") + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


class BaseNote(BaseModel):
    """The base model that an adapter was trained on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """As the recipe names it: `smol`, a folder or a hub id."""
    sha256: str
    """Checksum of the GGUF file, or else of the weights: see `weights_sha256`."""


class ModelNote(BaseModel):
    """The file `tirjudge.json` in a model folder, written by `tirjudge train`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompts: str = "tir"
    """The family of prompts with which the judge was trained."""
    shown_chars: int | None = Field(default=None, ge=2)
    """The characters of a response that it was shown in training; None showed whole responses."""
    enable_thinking: bool | None = None
    """The thinking mode with which the judge was trained, see `ChatEncoder`."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens of one view that suffice for this judge, so that a turn without an end does not stall a run.

    It is the default of `--max-tokens`, and counts as that does: after the prompt, program outputs included.
    """
    base: BaseNote | None = None
    """The base model of an adapter; None for a full model."""
    note: str = ""
    """The judge's purpose in one line, shown with its verdicts."""


def read_note(folder: str) -> ModelNote:
    """Return the note in a model folder; an empty one for a folder without a note, and for a hub id.

    Raises ValueError, in one line, for a note that cannot be read.
    """
    path = Path(folder) / NOTE_FILE
    if not path.is_file():
        return ModelNote()
    try:
        return ModelNote.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def embedded_model() -> str:
    """Return the folder of the model that judges by default; raises ValueError if the package has none.

    It is the adapter `smol`, or the miniature in a package without it.
    """
    for name, weights in _EMBEDDED.items():
        if (MODELS / name / weights).is_file():
            return str(MODELS / name)
    raise ValueError("this installation has no embedded model: name one with --model or --base-url")


def embedded_name() -> str:
    """Return the name of the embedded model in result rows, such as `tirjudge-mini`."""
    return f"tirjudge-{Path(embedded_model()).name}"
