"""The memory, disk and arithmetic of this machine, as far as loading a model depends on them."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from tirjudge.models.base import ModelUnavailable

MEMORY = Path("/proc/meminfo")
CGROUPS = Path("/sys/fs/cgroup")
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Files that hold the memory limit of this process's control group, version 2 and 1."""


def check_memory(needed: int, purpose: str, remedy: str) -> None:
    """Raise ModelUnavailable, in one line with the remedy, if `needed` bytes of memory are not free."""
    free = free_memory()
    if free < needed:
        raise ModelUnavailable(
            f"{purpose} needs {gigabytes(needed)} of memory, and {gigabytes(free)} are free: {remedy}"
        )


def check_disk(needed: int, folder: Path, purpose: str, remedy: str) -> None:
    """Raise ModelUnavailable, in one line with the remedy, if `needed` bytes are not free in a folder."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelUnavailable(
            f"{purpose} needs {gigabytes(needed)} in {folder}, and {gigabytes(free)} are free: {remedy}"
        )


def free_memory() -> int:
    """Return the bytes of memory that this process may still use: Linux's estimate, or its group's limit."""
    lines = MEMORY.read_text().splitlines()
    # The file always names it: it exists since Linux 3.14.
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    for name in _LIMITS:
        with suppress(OSError, ValueError):  # there is no such group, or its limit is `max`
            free = min(free, int((CGROUPS / name).read_text()))
    return free


def gigabytes(size: int) -> str:
    """Format bytes as GB, or as MB below one GB."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
