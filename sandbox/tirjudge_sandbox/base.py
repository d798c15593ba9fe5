"""The sandbox contract: a program goes in, an execution comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self

MIB = 1 << 20


class Status(StrEnum):
    """How an execution ended, by the kernel's word and never by the program's."""

    OK = "ok"
    """The program ended by itself with exit code 0."""
    ERROR = "error"
    """The program ended by itself with another exit code (1 after an uncaught exception)."""
    SIGNAL = "signal"
    """A signal ended it that was none of our limits: abort, a crash, its own kill."""
    WALL_LIMIT = "wall_limit"
    CPU_LIMIT = "cpu_limit"
    MEMORY_LIMIT = "memory_limit"
    """The kernel killed it for memory; an ordinary MemoryError is an ERROR."""
    OUTPUT_LIMIT = "output_limit"
    """It wrote more than `Limits.output_bytes` and was killed there; what came before is kept."""
    SANDBOX_FAILED = "sandbox_failed"
    """The sandbox broke, not the program. Never to be shown to a model as a program's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python program and everything it is given. Each run is independent of every other."""

    source: str
    """Python source; any text at all, lone surrogates and NUL included: a bad one is a SyntaxError."""
    bindings: Mapping[str, Any] = field(default_factory=dict)
    """Names defined before the first line, with JSON values (str, int, float, bool, None, list, dict)."""
    stdin: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files laid into the working folder before the start: relative path to content."""
    fetch: tuple[str, ...] = ()
    """Relative paths read back from the working folder after the end; a missing one is left out."""
    seed: int = 0
    """Seeds `random` and, where it is loaded, numpy. The hash seed is fixed for all programs."""
    client: str = ""
    """Whose it is: while programs wait, clients take turns, however many each has. Any name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use; counted from its start, not from its queueing."""

    wall_seconds: float = 20.0
    cpu_seconds: float = 10.0
    memory_bytes: int = 512 * MIB
    """Address space beyond what the warm interpreter already maps."""
    processes: int = 0
    """Processes and threads it may start beside its own; none where the placement has no PID namespace."""
    output_bytes: int = MIB
    """Standard output and standard error together; at the cap the program is killed."""
    disk_bytes: int = 16 * MIB
    """Everything it writes to its working folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Which properties hold where a program ran. A sandbox that lacks one refuses unless told otherwise."""

    placement: str
    """How they were reached: `root`, `userns`, ..."""
    host_files_hidden: bool
    network_cut: bool
    processes_contained: bool
    calls_filtered: bool
    notes: tuple[str, ...] = ()
    """For every property that does not hold: which, why, and what would mend it."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the properties that do not hold."""
        names = ("host_files_hidden", "network_cut", "processes_contained", "calls_filtered")
        return tuple(name for name in names if not getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of one program."""

    status: Status
    exit_code: int | None = None
    """None unless the program ended by itself."""
    signal: int | None = None
    """The signal that ended it, ours included; None if it ended by itself."""
    stdout: str = ""
    """Decoded as UTF-8; undecodable bytes become U+FFFD."""
    stderr: str = ""
    truncated: bool = False
    """True when the output cap cut stdout or stderr."""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    queued_seconds: float = 0.0
    """Time between the call of `run` and the program's start."""
    max_rss_bytes: int = 0
    """Peak resident memory, the warm interpreter's share included."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    isolation: Isolation | None = None
    """None only when the sandbox failed before it had a place to run."""
    detail: str = ""
    """For SANDBOX_FAILED: what broke. Empty otherwise."""


class SandboxUnavailable(RuntimeError):
    """The machine cannot give a property that was asked for; the text says which, why, and what to do."""


class Sandbox(Protocol):
    """A backend. At most `capacity` programs run at once; the rest wait, clients in turn, each in order."""

    capacity: int

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """Run one program. Never raises for what the program does; cancelling kills it first.

        Raises ValueError for limits that are not positive, or paths that leave the working folder.
        """
        ...
