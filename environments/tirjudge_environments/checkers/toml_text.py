"""TOML of other people: a text that would take minutes or gigabytes to parse is refused."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_PARTS = 200
"""Most parts of a dotted key: tomllib's time and memory grow with the square of the parts."""
_PART = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![\w\-.]){_PART}(?:\.[ \t]*+{_PART}){{{_MOST_PARTS},}}+")


def toml_document(text: str) -> dict[str, Any]:
    """Return the values of a TOML document; raises ValueError, in one line, for any other text."""
    if found := _LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(f"line {line}: a key may have {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
