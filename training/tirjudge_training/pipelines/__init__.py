"""Training methods: how the stages of a run are put together, found by name."""

from __future__ import annotations

from tirjudge_training.pipelines.base import Method, open_method

__all__ = ["Method", "open_method"]
