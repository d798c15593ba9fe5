"""The text files of this package: sections in square brackets, each followed by lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType


@cache
def sections(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the lines of a text file of this package by the heading of their section."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for raw in files(__package__).joinpath(f"{name}.txt").read_text(encoding="utf-8").splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]") and not _holds_a_bracket(line):
            lines = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return MappingProxyType({heading: tuple(one) for heading, one in found.items()})


def _holds_a_bracket(line: str) -> bool:
    # A heading has no bracket of its own.
    return "[" in line[1:]
