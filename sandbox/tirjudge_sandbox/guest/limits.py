"""The limits of a program, declared once for the host, its workers and the servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

MIB = 1 << 20

_LEAST_INODES, _FILE_BYTES = 4096, 4096


def most_files(disk_bytes: int) -> int:
    """Return how many files and folders a working folder of this size holds, itself included.

    It has room for files of one page each, and for at least 4,096.
    """
    return max(_LEAST_INODES, disk_bytes // _FILE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resources that one program may use, such as `Limits(wall_seconds=5)`.

    This object travels from the caller to the process that enforces it: in a `wire.Job` to a worker, and as
    JSON to a server, which refuses more than its `ServerSettings.most`. Who enforces a limit, by placement:

    | | `root`, `userns` | container | `own-uid`, `plain` |
    |---|---|---|---|
    | `wall_seconds`, `cpu_seconds`, `memory_bytes`, `threads` | worker | worker | worker |
    | `processes` | worker | worker | always 0 |
    | `output_bytes` | host | host | host |
    | `disk_bytes` | working folder | working folder | programs can write no file |

    To add a limit, add a field here, its largest value of a request in `server.settings.MOST`, a row of the
    table, and its enforcement: `guest.program` before a program starts, `guest.supervisor` or
    `workers.worker` while it runs, `guest.privileges` (in place of a fixed value there, such as that of
    descriptors), or a field of `WorkingFolder` of the same name, which a server raises to its largest value
    for all programs (`LocalSandbox.share_folders`). Workers, containers and servers carry and compare every
    field of this class; `tests/sandbox/guest/test_limits.py` tests each.
    """

    wall_seconds: float = 20.0
    """Time from the program's start, not from its queueing."""
    cpu_seconds: float = 10.0
    """CPU time of each of its processes."""
    memory_bytes: int = 512 * MIB
    """Address space beyond what the warm interpreter already maps; each thread's stack takes 8 MiB of it.
    Each process may have as much, and in a control group all processes together."""
    threads: int = 32
    """Threads that it may run at once besides its first one, without `processes`. A pool of the standard
    library makes no more."""
    processes: int = 0
    """Processes that it may run at once besides its first one; always 0 where the placement has no PID
    namespace. Above 0, it is the most processes and threads together, whatever `threads` is: the kernel
    counts both as one."""
    output_bytes: int = MIB
    """Standard output and standard error together; a program that exceeds it is killed."""
    disk_bytes: int = 16 * MIB
    """Everything it writes to its working folder."""


@dataclass(frozen=True, slots=True)
class WorkingFolder:
    """The limits that the kernel takes when a worker mounts its working folder.

    They hold for all programs of the worker: a program with other ones needs another worker.
    """

    disk_bytes: int = 0

    @classmethod
    def of(
        cls, limits: Limits, least: WorkingFolder | None = None, taken: WorkingFolder | None = None
    ) -> Self:
        """Return the folder of a program, with at least what `least` holds and what `taken` holds besides."""
        most, taken = least or cls(), taken or cls()
        return cls(
            **{
                name: max(getattr(limits, name), getattr(most, name)) + getattr(taken, name)
                for name in cls.__slots__
            }
        )

    def mount_options(self) -> str:
        """Return the options of its tmpfs but for the owner."""
        return f"size={self.disk_bytes},nr_inodes={most_files(self.disk_bytes)},mode=0700"
