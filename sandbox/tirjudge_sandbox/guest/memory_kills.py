"""The kernel's count of processes that it killed because a control group was out of memory."""

from __future__ import annotations

import os

_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Of control groups version 2 and version 1, as a container sees its own."""


def open_count() -> int | None:
    """A descriptor that a process which may no longer open files can count by; None where there is none."""
    for path in _FILES:
        try:
            return os.open(path, os.O_RDONLY)
        except OSError:
            continue
    return None


class MemoryKills:
    """Kills since the last look."""

    def __init__(self, descriptor: int | None):
        self._descriptor = descriptor
        self._seen = self._count()

    def rose(self) -> bool:
        """Whether there was one since this was last called."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        if self._descriptor is None:
            return 0
        lines = os.pread(self._descriptor, 4096, 0).decode().splitlines()
        return next(int(count) for name, count in map(str.split, lines) if name == "oom_kill")
