"""Text of settings, recipes and model notes as values: bounded, since such files come from other people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tirjudge_environments.checkers.file import toml_document

MOST_BYTES = 16 << 20
"""Bytes of a file of settings; the largest ones are indices of sharded weights."""


def toml_value(text: str) -> dict[str, Any]:
    """Return a TOML document; raises ValueError, in one line, for any other text."""
    _check_size(len(text))
    return toml_document(text)


def json_value(text: str) -> Any:
    """Return a JSON value; raises ValueError, in one line, for any other text."""
    _check_size(len(text))
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def json_file(path: Path) -> Any:
    """Return the JSON value in a file; raises ValueError, in one line, and OSError."""
    _check_size(path.stat().st_size)
    return json_value(path.read_text(encoding="utf-8"))


class Damaged(ValueError):
    """A file of a run is not as the run wrote it; the message is one line, and says what to do."""


def recorded_table(path: Path, remedy: str) -> dict[str, Any]:
    """Return the table in a TOML or JSON file that a run wrote. Raises Damaged, with the remedy."""
    try:
        text = path.read_text(encoding="utf-8")
        value = toml_value(text) if path.suffix == ".toml" else json_value(text)
    except ValueError as error:
        raise Damaged(f"{path} is damaged ({error}): {remedy}") from None
    if not isinstance(value, dict):
        raise Damaged(f"{path} is damaged (it holds no table): {remedy}")
    return value


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"it may have {MOST_BYTES >> 20} MiB")
