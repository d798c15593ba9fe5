"""Memory of a worker: its heap in huge pages, whom the kernel kills first, and how often it did."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Sequence

from tirjudge_sandbox.guest import syscalls

_HUGE_PAGE_BITS = 21
_MADV_COLLAPSE = 25
_EVENT_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""The counters of control groups version 2 and version 1, as a container sees its own."""

TEMPLATE_SCORE, _PROGRAM_SCORE = 500, 1000
"""Values of oom_score_adj. The host's own processes usually have 0, so workers are killed before them. A
process may raise its score, and lower it again, but not below what it was given with privileges."""


def collapse_heap() -> None:
    """Move every region with live objects into a huge page, where the kernel can (from Linux 6.1 on).

    A fork copies page tables, which is much faster with fewer and larger pages.
    """
    for region in {id(one) >> _HUGE_PAGE_BITS for one in gc.get_objects()}:
        # The call fails for a region that is only partly mapped.
        with contextlib.suppress(OSError):
            syscalls.libc("madvise", region << _HUGE_PAGE_BITS, 1 << _HUGE_PAGE_BITS, _MADV_COLLAPSE)


class KernelFiles:
    """Descriptors of files about this process, opened before it may no longer open any."""

    def __init__(self, process: int, ruleset: int | None, score: int | None, kills: int | None):
        """A descriptor is None where there is no such file.

        `process`: /proc/self, in which the supervisor opens files before it enters `ruleset`: they show what
        is mapped after the `execve` that made it. `ruleset`: the rules of Landlock. `score`:
        /proc/self/oom_score_adj, if it may be written. `kills`: the control group's count of processes
        killed for lack of memory.
        """
        self.process, self.ruleset, self.score, self.kills = process, ruleset, score, kills

    @classmethod
    def open(cls, kills: Sequence[str] = _EVENT_FILES) -> KernelFiles:
        """Open the files. `kills`: paths to try for the count. Raises OSError."""
        return cls(
            os.open("/proc/self", os.O_PATH | os.O_DIRECTORY),
            None,
            _opened("/proc/self/oom_score_adj", os.O_RDWR),
            next((one for path in kills if (one := _opened(path, os.O_RDONLY)) is not None), None),
        )

    def inherited(self) -> str:
        """Return the numbers for a program that inherits the descriptors, with a point for None."""
        numbers = (self.process, self.ruleset, self.score, self.kills)
        for descriptor in numbers:
            if descriptor is not None:
                os.set_inheritable(descriptor, True)
        return " ".join("." if descriptor is None else str(descriptor) for descriptor in numbers)

    @classmethod
    def of_parent(cls, text: str) -> KernelFiles:
        """Return the descriptors that `inherited` of the former program named."""
        process, *others = text.split()
        return cls(int(process), *(None if one == "." else int(one) for one in others))


class Mapped:
    """The memory that this process maps."""

    def __init__(self, process: int):
        """`process`: from `KernelFiles`; it is closed. Raises OSError."""
        self._stat = os.open("stat", os.O_RDONLY, dir_fd=process)
        self._maps = os.open("smaps", os.O_RDONLY, dir_fd=process)
        os.close(process)

    def close(self) -> None:
        os.close(self._stat)
        os.close(self._maps)

    @property
    def address_space(self) -> int:
        """Bytes of addresses."""
        # Field 23 of proc_pid_stat(5); the name, which is the second one, may contain spaces.
        return int(os.pread(self._stat, 4096, 0).rpartition(b")")[2].split()[20])

    def is_shared(self) -> bool:
        """Return True if a child of this process could change mapped memory of another child."""
        with open(self._maps, "rb", closefd=False) as file:
            file.seek(0)
            # See proc_pid_smaps(5): the mapping is shared (`sh`), and may become writable (`mw`).
            flags = (set(line.split()[1:]) for line in file if line.startswith(b"VmFlags:"))
            return any({b"sh", b"mw"} <= one for one in flags)


def _opened(path: str, flags: int) -> int | None:
    try:
        return os.open(path, flags)
    except OSError:
        return None


class KillOrder:
    """Makes the kernel kill a program before its supervisor when memory runs out."""

    def __init__(self, score: int | None):
        """`score`: from `KernelFiles`."""
        self._score = score

    def program_first(self) -> None:
        """Give this process the score that a child forked now inherits."""
        self._write(_PROGRAM_SCORE)

    def supervisor_last(self) -> None:
        """Give this process its own score again."""
        self._write(TEMPLATE_SCORE)

    def _write(self, score: int) -> None:
        if self._score is not None:
            with contextlib.suppress(OSError):
                os.pwrite(self._score, str(score).encode(), 0)


class MemoryKills:
    """Detects processes that the kernel killed because the control group was out of memory."""

    def __init__(self, descriptor: int | None):
        """`descriptor`: from `KernelFiles`."""
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
