"""What stands beside a model's weights: the prompts it was trained with, and the model that ships with us."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from tirjudge_environments.registry import first_fault

NOTE_FILE = "tirjudge.json"
EMBEDDED_NAME = "tirjudge-mini"


class ModelNote(BaseModel):
    """`tirjudge.json` in a model's folder; `tirjudge train` writes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompts: str = "tir"
    """The family of prompts that the judge was trained with."""
    note: str = ""
    """What the judge is good for, in one line; shown wherever its verdicts are."""


def read_note(folder: str) -> ModelNote:
    """The note in a model's folder; an empty one for a folder without, and for a hub id.

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
    """The folder of the model that ships with the package; raises ValueError where there is none."""
    folder = Path(str(files("tirjudge") / "models" / "mini"))
    if not (folder / "model.safetensors").is_file():
        raise ValueError("this installation holds no embedded model: name one with --model or --base-url")
    return str(folder)
