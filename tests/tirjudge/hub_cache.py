"""A cache of huggingface_hub with snapshots made from folders, and no way to the hub."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

COMMIT = "c0ffee" * 6 + "c0de"


def snapshot(folder: Path, name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy a model folder to where a download of the hub id `name` leaves it, and return that folder."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return Path(shutil.copytree(folder, repository / "snapshots" / COMMIT))
