"""The error of models that cannot be had, and the cache folder of converted ones."""

from __future__ import annotations

import os
from pathlib import Path


class ModelUnavailable(ValueError):
    """A model cannot be found, verified, converted or loaded; the message is one line with the remedy."""


def cache_folder() -> Path:
    """Return the folder of converted models: `tirjudge/models` in the user's cache folder (XDG)."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tirjudge" / "models"
