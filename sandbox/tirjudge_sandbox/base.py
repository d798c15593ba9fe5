"""The sandbox interface: a `Program` with its `Limits` goes in, an `Execution` comes out."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from posixpath import normpath
from types import TracebackType
from typing import Any, Protocol, Self

from tirjudge_sandbox.guest.limits import MIB as MIB
from tirjudge_sandbox.guest.limits import Limits as Limits
from tirjudge_sandbox.guest.limits import most_files

MOST_FOLDERS = 64
"""Folders of one path of `Program.files` and `Program.fetch`: each is opened again for every file in it."""

MOST_NESTED = 500
"""Levels of `Program.bindings`. Twice as many exceed Python's recursion limit."""

LARGEST_LIMIT = 1 << 62
"""Larger numbers do not fit the integers of the kernel's interfaces."""
_MOST_NAME_BYTES, _MOST_PATH_BYTES = 255, 4095
"""Limits of Linux (NAME_MAX and PATH_MAX) on a name between slashes, and on a path."""
_SHOWN_CHARACTERS = 100
_COUNTS = ("threads", "processes")
"""The limits that may be 0."""


class Status(StrEnum):
    """The way an execution ended, as reported by the kernel and never by the program.

    OK and ERROR: the program ended by itself, with exit code 0 or with another. SIGNAL: a signal ended it.
    WALL_LIMIT, CPU_LIMIT, MEMORY_LIMIT and OUTPUT_LIMIT: it was killed at that limit. SANDBOX_FAILED: the
    sandbox failed and not the program, so the output must never be shown to a model.
    """

    OK = "ok"
    """The program ended by itself with exit code 0."""
    ERROR = "error"
    """The program ended by itself with another exit code (1 after an uncaught exception)."""
    SIGNAL = "signal"
    """The program was ended by a signal that no limit caused: an abort, a crash, or its own kill."""
    WALL_LIMIT = "wall_limit"
    """The program was killed after `Limits.wall_seconds`."""
    CPU_LIMIT = "cpu_limit"
    """The program was killed after `Limits.cpu_seconds`."""
    MEMORY_LIMIT = "memory_limit"
    """The kernel killed the program for its use of memory. An ordinary MemoryError is an ERROR."""
    OUTPUT_LIMIT = "output_limit"
    """The program wrote more than `Limits.output_bytes` and was killed; the output up to there is kept."""
    SANDBOX_FAILED = "sandbox_failed"
    """The sandbox failed, not the program. Never show this to a model as a program's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A Python program with all its inputs, such as `Program("print(x + 1)", bindings={"x": 1})`.

    Each run is independent of every other.
    """

    source: str = field(kw_only=False)
    """Python source. Any text is accepted, lone surrogates and NUL included; bad text is a SyntaxError."""
    bindings: Mapping[str, Any] = field(default_factory=dict)
    """Global names defined before the first line, with JSON values (str, int, float, bool, None, list,
    dict), nested at most `MOST_NESTED` levels deep."""
    stdin: str = ""
    """Text of its standard input."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files written to the working folder before the start: relative path to content. A path that ends with a
    slash, without content, is an empty folder."""
    fetch: tuple[str, ...] = ()
    """Relative paths read back from the working folder after the end; missing files are left out. At most
    as many paths as the working folder holds files; each, as those of `files`, with at most `MOST_FOLDERS`
    folders."""
    seed: int = 0
    """Seed of `random` and, where it is loaded, numpy. The hash seed is the same for all programs."""
    client: str = ""
    """Any name for who sent the program. Waiting clients take turns, however many programs each has queued.

    Of names with a slash, the parts before it take turns, and then the names with the same part.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The isolation properties that hold where a program ran.

    A sandbox that lacks a property refuses to open unless weak isolation is allowed explicitly.
    """

    placement: str
    """Name of the mechanism that isolates the worker: `root`, `userns`, ..."""
    host_files_hidden: bool
    """Programs cannot open files of the host."""
    network_cut: bool
    """Programs cannot open sockets."""
    processes_contained: bool
    """Programs reach no other process, and leave none behind."""
    calls_filtered: bool
    """System calls that programs do not need are refused."""
    notes: tuple[str, ...] = ()
    """One entry per property that does not hold: its name, the reason and, where known, a remedy."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the properties that do not hold."""
        names = ("host_files_hidden", "network_cut", "processes_contained", "calls_filtered")
        return tuple(name for name in names if not getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The result of running one program: how it ended, what it printed and what it took."""

    status: Status
    """The way in which it ended."""
    exit_code: int | None = None
    """None unless the program ended by itself."""
    signal: int | None = None
    """The signal that ended the program, including the sandbox's own; None if it ended by itself."""
    stdout: str = ""
    """Decoded as UTF-8; undecodable bytes become U+FFFD."""
    stderr: str = ""
    """Decoded as `stdout`; a traceback names the program `<program>`."""
    truncated: bool = False
    """True when the output limit cut stdout or stderr."""
    kept_bytes: int = 0
    """Bytes of stdout and stderr together, before they were decoded."""
    cut_bytes: int = 0
    """Bytes that the program wrote beyond the output limit before it was stopped. How many depends on the
    machine's speed."""
    wall_seconds: float = 0.0
    """Time from the program's start to its end."""
    cpu_seconds: float = 0.0
    """CPU time of all its processes."""
    queued_seconds: float = 0.0
    """Time between the call of `run` and the program's start."""
    max_rss_bytes: int = 0
    """Peak resident memory, including the share of the warm interpreter."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files that `Program.fetch` asked for: relative path to content."""
    isolation: Isolation | None = None
    """None only when the sandbox failed before it had a place to run the program."""
    detail: str = ""
    """The reason for a SANDBOX_FAILED; empty otherwise."""


class InvalidProgram(ValueError):
    """A program or limits that `validate` refuses."""

    def __init__(self, field: str, text: str):
        super().__init__(text)
        self.field = field
        """Name of the invalid field of `Program`; `limits.NAME` for one of `Limits`."""


class SandboxUnavailable(RuntimeError):
    """No sandbox with the requested properties can be opened; the message says why and what to do."""


class PackageMissing(SandboxUnavailable):
    """A package that the sandbox or a server needs is not installed; the message names its extra."""


class Sandbox(Protocol):
    """A sandbox backend.

    At most `capacity` programs run at once; a backend may let a few more run while all of these take long.
    The others wait: clients take turns, and each client's programs start in order.
    """

    capacity: int

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, program: Program, limits: Limits = ...) -> Execution:
        """Run one program. Never raises for what the program does; cancelling kills the program first.

        Raises InvalidProgram, which is a ValueError, for what `validate` refuses.
        """


class OthersSandbox:
    """A base class for sandboxes that close nothing: the owner of an inner sandbox closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Do nothing: there is nothing of its own to close."""


def read_limits(given: Mapping[str, Any], usual: Limits = Limits()) -> Limits:
    """Return the limits with these names and values, and `usual` ones for others.

    Raises ValueError, in one line, for an unknown name and a value that `validate` refuses.
    """
    known = {limit.name: limit.type for limit in fields(Limits)}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"there is no limit {name!r}; there are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"the limit {name} is a number, not {value!r}")
    # Whole numbers may be written as 1e9.
    whole = {name: value for name, value in given.items() if known[name] == "int" and value % 1 == 0}
    limits = replace(usual, **{**given, **{name: int(value) for name, value in whole.items()}})
    validate(Program(""), limits)
    return limits


def validate(program: Program, limits: Limits) -> None:
    """Raise InvalidProgram for a program that cannot be run whatever its source is.

    These are limits that are not positive and finite, or not whole where they must be; files that cannot be
    written, because of their paths, number or size; and bindings that nest too deeply. They would look like
    errors of the program.
    """
    for limit in fields(limits):
        value = getattr(limits, limit.name)
        # The comparisons are negated so that NaN fails them too.
        if not (value >= 0 if limit.name in _COUNTS else value > 0) or value > LARGEST_LIMIT:
            raise InvalidProgram(
                f"limits.{limit.name}", f"Limits.{limit.name} must be positive and finite, not {value}"
            )
        if limit.type == "int" and isinstance(value, float):
            raise InvalidProgram(
                f"limits.{limit.name}", f"Limits.{limit.name} must be a whole number, not {value}"
            )
    files = [path if content else path.removesuffix("/") for path, content in program.files.items()]
    for name, paths in (("files", files), ("fetch", program.fetch)):
        if problem := next(filter(None, map(_problem_of_path, paths)), ""):
            raise InvalidProgram(name, problem)
    if len(program.fetch) > (most := most_files(limits.disk_bytes)):
        problem = f"{len(program.fetch)} files cannot be fetched: a working folder holds {most}"
        raise InvalidProgram("fetch", problem)
    if program.files and (problem := _problem_of_files(program.files, limits)):
        raise InvalidProgram("files", problem)
    if nested_too_deeply(program.bindings):
        problem = f"Program.bindings must not be nested more than {MOST_NESTED} levels deep"
        raise InvalidProgram("bindings", problem)


def nested_too_deeply(value: Any) -> bool:
    """Return True for a JSON value of more than `MOST_NESTED` levels of lists and dicts."""
    level = {id(value): value}
    for _ in range(MOST_NESTED):
        # Each once: a list may contain the same one many times, and itself.
        level = {
            id(part): part
            for whole in level.values()
            for part in (whole.values() if isinstance(whole, Mapping) else whole)
            if isinstance(part, dict | list | tuple)
        }
        if not level:
            return False
    return True


def _problem_of_path(path: str) -> str:
    """Return why a file of the program cannot have this path; empty if it can."""
    shown = repr(path[:_SHOWN_CHARACTERS])
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or path.startswith("/") or path.endswith(("/", "/.")) or ".." in parts or "\0" in path:
        return f"{shown} is not a path inside the working folder"
    try:
        longest, length = max(len(os.fsencode(part)) for part in parts), len(os.fsencode(path))
    except UnicodeEncodeError:
        return f"{shown} is not a path: it contains half a character"
    if longest > _MOST_NAME_BYTES or length > _MOST_PATH_BYTES:
        return (
            f"{shown}... is too long a path: {_MOST_PATH_BYTES} bytes are possible, "
            f"and {_MOST_NAME_BYTES} between slashes"
        )
    if len(parts) > MOST_FOLDERS + 1:
        return f"{shown}... lies in {len(parts) - 1} folders, at most {MOST_FOLDERS} are possible"
    return ""


def _problem_of_files(files: Mapping[str, bytes], limits: Limits) -> str:
    """Return why these files cannot be written to one working folder; empty if they can."""
    given = [path for path in files if not path.endswith("/")]
    paths = set(map(normpath, given))
    folders = {normpath(path) for path in files if path.endswith("/")}
    most = most_files(limits.disk_bytes)
    for folder in folders_above((*paths, *folders)):
        folders.add(folder)
        # At once: the folders of all paths could take dozens of times the memory of the paths.
        if len(paths) + len(folders) > most:
            return (
                f"the program's {len(paths)} files and their folders exceed the {most} "
                f"that a working folder of {limits.disk_bytes} bytes holds"
            )
    if len(paths) < len(given) or not paths.isdisjoint(folders):
        return "the program's files clash: a path is given twice, or as a file and as a folder"
    sizes = [len(content) for content in files.values()]
    # The folder holds whole pages; the limit may end within one.
    size, taken = sum(sizes), sum(map(_in_pages, sizes))
    if size > limits.disk_bytes or taken > _in_pages(limits.disk_bytes):
        size = max(size, taken)
        return f"the program's files take {size} bytes, Limits.disk_bytes is {limits.disk_bytes}"
    return ""


def folders_above(paths: Iterable[str]) -> Iterator[str]:
    """Yield the folders above relative paths, each once; the working folder is the empty path."""
    seen: set[str] = set()
    for path in paths:
        while path and (path := path.rpartition("/")[0]) not in seen:
            seen.add(path)
            yield path


def has_large_files(program: Program) -> bool:
    """Return True for a program whose files are copied in a thread: the event loop would stand still."""
    return sum(map(len, program.files.values())) > MIB


def _in_pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
