"""The real pretrained model: the wheel's file and its conversion, shared by the tests of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tirjudge.models import SMOL
from tirjudge.models.machine import cache_folder

FILE = SMOL.installed_file()
needs_smollm2 = pytest.mark.skipif(FILE is None, reason=f"needs `{SMOL.install}`")


def wheel_file() -> Path:
    """Return the wheel's GGUF file."""
    assert FILE is not None
    return FILE


def use_converted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `folder` be the user's cache, with the converted model in it, and return the model's folder.

    The model is converted once into the cache of whoever runs the tests; the folder refers to it.
    """
    # A process of its own: transformers leaves the file open, which would be a warning in this one.
    subprocess.run(
        [sys.executable, "-c", "from tirjudge.models import resolve_model; resolve_model('smol')"], check=True
    )
    converted = SMOL.folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    cache_folder().mkdir(parents=True)
    os.symlink(converted, SMOL.folder())
    return SMOL.folder()
