"""The messages between host and worker: records of fixed size, and a sealed memory file per program."""

from __future__ import annotations

import fcntl
import json
import marshal
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields

from tirjudge_sandbox.guest.limits import Limits

CANCEL = b"cancel"
"""Sent by the host while a program runs: kill it and report its end."""

PREPARE = b"prepare"
"""Sent by the host to a worker that starts, with the `Payload` of the prepared program."""

UNLAID = b"unlaid "
"""The start of the report of a program's own process that its files could not be written, before the program
runs; the reason follows."""

RECORD_BYTES = 4096
"""The largest size of a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Limits):
    """The limits of one program, which is all that the supervisor learns about it.

    The record is sent with descriptors: the `Payload`, stdin, stdout, stderr and, with `fetch`, a fifth one
    for the files that are read back.
    """

    fetch: bool

    def pack(self) -> bytes:
        return _JOB.pack(*(getattr(self, name) for name in _JOB_FIELDS))

    @classmethod
    def of(cls, limits: Limits, *, fetch: bool) -> Job:
        return cls(**{name: getattr(limits, name) for name in Limits.__slots__}, fetch=fetch)

    @classmethod
    def unpack(cls, record: bytes) -> Job:
        return cls(**dict(zip(_JOB_FIELDS, _JOB.unpack(record), strict=True)))


_JOB_FIELDS = [field.name for field in fields(Job)]
_CODES = {"float": "d", "int": "Q", "bool": "?"}
_JOB = struct.Struct("=" + "".join(_CODES[str(field.type)] for field in fields(Job)))
MOST_DESCRIPTORS = 5
"""Descriptors of a `Job`."""


@dataclass(frozen=True)
class Ending:
    """The end of a program, as the kernel reported it to the supervisor."""

    WALL, CPU, MEMORY, CANCELLED = "wall", "cpu", "memory", "cancelled"

    killed_for: str | None
    """The reason why the supervisor killed the program, None if it did not."""
    wait_status: int
    wall_seconds: float
    cpu_seconds: float
    max_rss_bytes: int

    def pack(self) -> bytes:
        return json.dumps(self.__dict__).encode()

    @classmethod
    def unpack(cls, record: bytes) -> Ending:
        """Parse a record.

        Raises ValueError for a record that `pack` cannot write: the worker may be compromised.
        """
        try:
            ending = cls(**json.loads(record))
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        if not ending._possible():
            raise ValueError(f"impossible end of a program: {ending}")
        return ending

    def _possible(self) -> bool:
        seconds, status = (self.wall_seconds, self.cpu_seconds), self.wait_status
        return (
            self.killed_for in (None, self.WALL, self.CPU, self.MEMORY, self.CANCELLED)
            # Not isinstance, for which the true and false of JSON are integers.
            and all(type(value) in (int, float) and 0 <= value < math.inf for value in seconds)
            and all(type(value) is int and 0 <= value < 1 << 62 for value in (status, self.max_rss_bytes))
            and status <= 0xFFFF
            and (os.WIFEXITED(status) or os.WIFSIGNALED(status))
        )


_SIZE = struct.Struct("=Q")


@dataclass(frozen=True)
class Payload:
    """The content of a program, read only by its own process: the supervisor's heap would keep traces."""

    source: bytes
    bindings: str
    """A JSON object."""
    files: Mapping[str, tuple[int, int]]
    """The offset and the size of each file's content in the memory file. Memory of a program is limited, and
    never holds the contents."""
    fetch: tuple[str, ...]
    seed: int

    @classmethod
    def seal(
        cls, source: bytes, bindings: str, files: Mapping[str, bytes], fetch: tuple[str, ...], seed: int
    ) -> int:
        """Return a new descriptor of a read-only memory file with a payload, equal contents once."""
        offsets: dict[bytes, int] = {}
        end = 0
        for content in files.values():
            if content not in offsets:
                offsets[content] = end
                end += len(content)
        places = {path: (offsets[content], len(content)) for path, content in files.items()}
        head = marshal.dumps((source, bindings, places, fetch, seed))
        return sealed(_SIZE.pack(len(head)), head, *offsets)

    @classmethod
    def read(cls, descriptor: int) -> Payload:
        # Read at an offset, because the process that fetches files reads the same open file again.
        (size,) = _SIZE.unpack(os.pread(descriptor, _SIZE.size, 0))
        source, bindings, places, fetch, seed = marshal.loads(os.pread(descriptor, size, _SIZE.size))
        start = _SIZE.size + size
        files = {path: (start + offset, length) for path, (offset, length) in places.items()}
        return cls(source, bindings, files, fetch, seed)


def sealed(*parts: bytes) -> int:
    """Return a new descriptor, at offset 0, of a memory file with this content that cannot be changed."""
    descriptor = os.memfd_create("tirjudge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.writelines(parts)
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor
