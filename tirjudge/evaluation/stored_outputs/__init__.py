"""Stored outputs of tirjudge and other projects, read as judged rows."""

from __future__ import annotations

from tirjudge.evaluation.stored_outputs.reading import Replay, open_replay, stored_output_formats

__all__ = ["Replay", "open_replay", "stored_output_formats"]
