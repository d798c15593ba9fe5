"""The miniature as tests train it: its recipe, with the stored model as the start and a few rows."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from examples.miniature import TRAINED
from examples.miniature.__main__ import write_rows

RECIPES = Path(__file__).parents[2] / "examples" / "miniature" / "recipes"
MINI = str(RECIPES / "mini.toml")
MODEL = str(TRAINED)


@cache
def rows() -> Path:
    """Return a folder with `train.jsonl`, 40 rows, and `heldout.jsonl`, two rows of each format."""
    folder = Path(tempfile.mkdtemp(prefix="miniature-"))
    write_rows(folder, train=40, heldout=2, seed=0)
    return folder


def assignments() -> list[str]:
    """Return the assignments of `inputs`."""
    return [f"{key}={value}" for key, value in inputs().items()]


def inputs() -> dict[str, str]:
    """Return the keys of a recipe that name the model and the rows."""
    return {
        "model.base": MODEL,
        "data.train": str(rows() / "train.jsonl"),
        "data.heldout": str(rows() / "heldout.jsonl"),
    }
