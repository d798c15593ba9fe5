"""Memory control groups: one for each worker of this host, in which the kernel counts all memory of programs.

RLIMIT_AS counts the addresses of one process. A control group also counts what the kernel holds for a program
(socket buffers, pipes, directory entries), its files in the working folder, and all its processes together.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tirjudge_sandbox.base import LARGEST_LIMIT, MIB, Limits

_ROOT = Path("/sys/fs/cgroup")
_NAME = re.compile(r"tirjudge-(\d+)-\d+")
_NUMBERS = itertools.count()
_PROGRAM_BYTES, _PROCESS_BYTES = 4 * MIB, MIB
"""Memory of the kernel that an honest program may need, page tables, descriptors and pipes, and that each of
its processes may need besides."""
_LEFT_BYTES = 32 * MIB
"""Memory that programs may leave behind in a group: the kernel remembers the names that were looked up."""
_REMOVALS, _REMOVAL_SECONDS = 100, 0.02


@dataclass(frozen=True, slots=True)
class Version:
    """The names of a version's files."""

    limit: str
    usage: str
    swap: tuple[str, str]
    """A file and the content with which nothing is swapped out."""
    kills: str
    cached: tuple[str, str]
    """The parts of `memory.stat` that Linux takes back when memory is needed."""


_V1 = Version(
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("memory.swappiness", "0"),
    "memory.oom_control",
    ("total_inactive_file", "total_active_file"),
)
_V2 = Version(
    "memory.max",
    "memory.current",
    ("memory.swap.max", "0"),
    "memory.events",
    ("inactive_file", "active_file"),
)


class MemoryGroup:
    """The memory control group of one worker: its processes, and the programs that they start."""

    def __init__(self, path: Path, version: Version):
        self._path, self._version = path, version
        self._base = 0
        self._limits: Limits | None = None

    @classmethod
    def create(cls, membership: str | None = None) -> Self | None:
        """Make a new group; None where this process may make none.

        In version 1 it is below the group of this process. In version 2 it is next to it, since a group with
        processes cannot have groups with limits below it. `membership` is the content of /proc/self/cgroup.
        """
        if membership is None:
            file = Path("/proc/self/cgroup")
            # A kernel without control groups has no such file.
            membership = file.read_text() if file.exists() else ""
        for parent, version in _parents(membership):
            path = parent / f"tirjudge-{os.getpid()}-{next(_NUMBERS)}"
            with contextlib.suppress(OSError):
                _remove_abandoned(parent)
                path.mkdir()
                group = cls(path, version)
                # In version 2 the file is missing if the parent does not pass the memory controller on.
                if (path / version.limit).exists():
                    with contextlib.suppress(OSError):
                        group._write(*version.swap)
                    return group
                group.discard()
        return None

    @property
    def processes(self) -> str:
        """Path of the file that a process joins by writing to it."""
        return str(self._path / "cgroup.procs")

    @property
    def kills(self) -> str:
        """Path of the file that counts processes killed for lack of memory."""
        return str(self._path / self._version.kills)

    def begin(self) -> bool:
        """Take the memory of the warm worker as its own; return False if the worker could not join."""
        try:
            if not Path(self.processes).read_text():
                return False
            self._base = self._used()
        except OSError:
            return False
        return True

    def discard(self) -> None:
        """Remove the group, which no process has joined. Raises OSError."""
        self._path.rmdir()

    def limit(self, limits: Limits) -> bool:
        """Set the limit for the next program. Return False if the group needs to be replaced first.

        It is the memory of the warm worker, and for all processes of the program together a copy of half of
        that (sympy writes to a quarter of the worker's pages), `memory_bytes`, the working folder, 4 MiB for
        the kernel, and 1 MiB for each process. The group needs to be replaced once earlier programs have left
        more than 32 MiB, or the kernel refuses the limit: taking that memory back would cost the time of the
        next program.
        """
        try:
            left = self._used() - self._base
            if left > _LEFT_BYTES and left - self._cached() > _LEFT_BYTES:
                return False
            if limits != self._limits:
                total = self._base + self._base // 2 + limits.memory_bytes + limits.disk_bytes
                total += _PROGRAM_BYTES + (1 + limits.processes) * _PROCESS_BYTES
                self._write(self._version.limit, str(min(total, LARGEST_LIMIT)))
                self._limits = limits
        except OSError:
            return False
        return True

    async def remove(self) -> None:
        """Remove the group, whose processes have ended. A later worker removes a group that stays."""
        for _ in range(_REMOVALS):
            try:
                self._path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                # A process leaves its group a moment after its parent has seen its end.
                await asyncio.sleep(_REMOVAL_SECONDS)
            else:
                return

    def _used(self) -> int:
        return int((self._path / self._version.usage).read_text())

    def _cached(self) -> int:
        stat = dict(map(str.split, (self._path / "memory.stat").read_text().splitlines()))
        return sum(int(stat[name]) for name in self._version.cached)

    def _write(self, name: str, content: str) -> None:
        (self._path / name).write_text(content)


def own_groups(membership: str) -> Iterator[tuple[Path, Version]]:
    """Yield the folders that a process's memory group may have, with the version of their file system.

    `membership` is the content of /proc/self/cgroup.
    """
    for line in membership.splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield _ROOT / "memory" / path.lstrip("/"), _V1
        elif number == "0":
            for root in (_ROOT, _ROOT / "unified"):
                yield root / path.lstrip("/"), _V2


def _parents(membership: str) -> Iterator[tuple[Path, Version]]:
    """Yield the folders in which a group may be made, with the version of their file system."""
    for path, version in own_groups(membership):
        if version is _V1:
            yield path, version
        elif path not in (_ROOT, _ROOT / "unified"):
            yield path.parent, version


def _remove_abandoned(parent: Path) -> None:
    """Remove the empty groups of hosts that were killed."""
    for path in parent.iterdir():
        if (match := _NAME.fullmatch(path.name)) and not Path("/proc", match[1]).exists():
            with contextlib.suppress(OSError):
                path.rmdir()
