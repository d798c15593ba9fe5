"""Memory of a worker: its heap in huge pages, and the kernel's count of processes killed for memory."""

from __future__ import annotations

import contextlib
import gc
import os

from tirjudge_sandbox.guest import syscalls

_HUGE_PAGE_BITS = 21
_MADV_COLLAPSE = 25
_EVENT_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""The counters of control groups version 2 and version 1, as a container sees its own."""


def collapse_heap() -> None:
    """Move every region with live objects into a huge page, where the kernel can (from Linux 6.1 on).

    A fork copies page tables, which is much faster with fewer and larger pages.
    """
    for region in {id(one) >> _HUGE_PAGE_BITS for one in gc.get_objects()}:
        # The call fails for a region that is only partly mapped.
        with contextlib.suppress(OSError):
            syscalls.libc("madvise", region << _HUGE_PAGE_BITS, 1 << _HUGE_PAGE_BITS, _MADV_COLLAPSE)


def open_kill_count() -> int | None:
    """Open the counter for a process that may no longer open files later; None where there is no counter."""
    for path in _EVENT_FILES:
        try:
            return os.open(path, os.O_RDONLY)
        except OSError:
            continue
    return None


class MemoryKills:
    """Detects processes that the kernel killed because the control group was out of memory."""

    def __init__(self, descriptor: int | None):
        """`descriptor`: from `open_kill_count`."""
        self._descriptor = descriptor
        self._seen = self._count()

    def rose(self) -> bool:
        """Return True if a process was killed since the last call."""
        before, self._seen = self._seen, self._count()
        return self._seen > before

    def _count(self) -> int:
        if self._descriptor is None:
            return 0
        lines = os.pread(self._descriptor, 4096, 0).decode().splitlines()
        return next(int(count) for name, count in map(str.split, lines) if name == "oom_kill")
