"""Text of settings, recipes and model notes as values: bounded, since such files come from other people."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

MOST_BYTES = 16 << 20
"""Bytes of a file of settings; the largest ones are indices of sharded weights."""
_MOST_PARTS = 200
"""Most parts of a dotted key: tomllib's time and memory grow with the square of the parts."""
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w\-.]){_PART}(?:\.[ \t]*+{_PART}){{{_MOST_PARTS},}}+")


def toml_value(text: str) -> dict[str, Any]:
    """Return a TOML document; raises ValueError, in one line, for any other text."""
    _check_size(len(text))
    if found := _LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line}: a key may have {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def json_value(text: str) -> Any:
    """Return a JSON value; raises ValueError, in one line, for any other text."""
    _check_size(len(text))
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def json_file(path: Path) -> Any:
    """Return the JSON value in a file; raises ValueError, in one line, and OSError."""
    _check_size(path.stat().st_size)
    return json_value(path.read_text(encoding="utf-8"))


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"it may have {MOST_BYTES >> 20} MiB")
