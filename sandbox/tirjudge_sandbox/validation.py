"""What a caller may ask of a sandbox, checked before anything runs."""

from __future__ import annotations

from dataclasses import fields
from pathlib import PurePosixPath

from tirjudge_sandbox.base import Limits, Program

_MOST = 1 << 62
"""Numbers above do not fit the kernel's."""


def check(program: Program, limits: Limits) -> None:
    """Raises ValueError for limits that are not positive and finite, and for paths that lead elsewhere."""
    for field in fields(limits):
        value = getattr(limits, field.name)
        if not (value >= 0 if field.name == "processes" else value > 0) or value > _MOST:
            raise ValueError(f"Limits.{field.name} must be positive and finite, not {value}")
    for path in (*program.files, *program.fetch):
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\0" in path:
            raise ValueError(f"{path!r} is not a path inside the working folder")
    laid = sum(map(len, program.files.values()))
    if laid > limits.disk_bytes:
        raise ValueError(f"the program's files take {laid} bytes, Limits.disk_bytes is {limits.disk_bytes}")
