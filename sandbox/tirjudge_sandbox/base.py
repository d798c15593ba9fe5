"""The sandbox interface: a `Program` with its `Limits` goes in, an `Execution` comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Protocol, Self

MIB = 1 << 20

_LARGEST_LIMIT = 1 << 62
"""Larger numbers do not fit the integers of the kernel's interfaces."""
_COUNTS = ("threads", "processes")


class Status(StrEnum):
    """The way an execution ended, as reported by the kernel and never by the program."""

    OK = "ok"
    """The program ended by itself with exit code 0."""
    ERROR = "error"
    """The program ended by itself with another exit code (1 after an uncaught exception)."""
    SIGNAL = "signal"
    """The program was ended by a signal that no limit caused: an abort, a crash, or its own kill."""
    WALL_LIMIT = "wall_limit"
    CPU_LIMIT = "cpu_limit"
    MEMORY_LIMIT = "memory_limit"
    """The kernel killed the program for its use of memory. An ordinary MemoryError is an ERROR."""
    OUTPUT_LIMIT = "output_limit"
    """The program wrote more than `Limits.output_bytes` and was killed; the output up to there is kept."""
    SANDBOX_FAILED = "sandbox_failed"
    """The sandbox failed, not the program. Never show this to a model as a program's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python program with all its inputs. Each run is independent of every other."""

    source: str
    """Python source. Any text is accepted, lone surrogates and NUL included; bad text is a SyntaxError."""
    bindings: Mapping[str, Any] = field(default_factory=dict)
    """Global names defined before the first line, with JSON values (str, int, float, bool, None, list,
    dict)."""
    stdin: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files written to the working folder before the start: relative path to content."""
    fetch: tuple[str, ...] = ()
    """Relative paths read back from the working folder after the end; missing files are left out."""
    seed: int = 0
    """Seed of `random` and, where it is loaded, numpy. The hash seed is the same for all programs."""
    client: str = ""
    """Any name for who sent the program. Waiting clients take turns, however many programs each has
    queued."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The resources that one program may use. Time counts from its start, not from its queueing."""

    wall_seconds: float = 20.0
    cpu_seconds: float = 10.0
    memory_bytes: int = 512 * MIB
    """Address space beyond what the warm interpreter already maps; each thread's stack takes 8 MiB of it."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The isolation properties that hold where a program ran.

    A sandbox that lacks one of them refuses to open unless weak isolation is allowed explicitly.
    """

    placement: str
    """Name of the mechanism that isolates the worker: `root`, `userns`, ..."""
    host_files_hidden: bool
    network_cut: bool
    processes_contained: bool
    calls_filtered: bool
    notes: tuple[str, ...] = ()
    """One entry per property that does not hold: its name, the reason and, where known, a remedy."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the properties that do not hold."""
        names = ("host_files_hidden", "network_cut", "processes_contained", "calls_filtered")
        return tuple(name for name in names if not getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The result of running one program."""

    status: Status
    exit_code: int | None = None
    """None unless the program ended by itself."""
    signal: int | None = None
    """The signal that ended the program, including the sandbox's own; None if it ended by itself."""
    stdout: str = ""
    """Decoded as UTF-8; undecodable bytes become U+FFFD."""
    stderr: str = ""
    truncated: bool = False
    """True when the output limit cut stdout or stderr."""
    kept_bytes: int = 0
    """Bytes of stdout and stderr together, before they were decoded."""
    cut_bytes: int = 0
    """Bytes that the program wrote beyond the output limit before it was stopped. How many depends on the
    machine's speed."""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    queued_seconds: float = 0.0
    """Time between the call of `run` and the program's start."""
    max_rss_bytes: int = 0
    """Peak resident memory, including the share of the warm interpreter."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    isolation: Isolation | None = None
    """None only when the sandbox failed before it had a place to run the program."""
    detail: str = ""
    """The reason for a SANDBOX_FAILED; empty otherwise."""


class SandboxUnavailable(RuntimeError):
    """No sandbox with the requested properties can be opened; the message says why and what to do."""


class Sandbox(Protocol):
    """A sandbox backend.

    At most `capacity` programs run at once. The others wait: clients take turns, and each client's programs
    start in order.
    """

    capacity: int

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """Run one program. Never raises for what the program does; cancelling kills the program first.

        Raises ValueError for limits that are not positive, or paths that leave the working folder.
        """
        ...


def validate(program: Program, limits: Limits) -> None:
    """Raise ValueError for limits that are not positive and finite, bad paths, or too large files."""
    for limit in fields(limits):
        value = getattr(limits, limit.name)
        # Only the counts may be 0. The comparisons are negated so that NaN fails them too.
        if not (value >= 0 if limit.name in _COUNTS else value > 0) or value > _LARGEST_LIMIT:
            raise ValueError(f"Limits.{limit.name} must be positive and finite, not {value}")
    for path in (*program.files, *program.fetch):
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\0" in path:
            raise ValueError(f"{path!r} is not a path inside the working folder")
    size = sum(map(len, program.files.values()))
    if size > limits.disk_bytes:
        raise ValueError(f"the program's files take {size} bytes, Limits.disk_bytes is {limits.disk_bytes}")
