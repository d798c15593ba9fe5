"""The examples of the documentation, imported as if they were run as scripts."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "frameworks"


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import an example with its folder on the path, for the files that it imports."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)
