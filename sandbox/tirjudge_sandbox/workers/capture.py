"""Capture of a program's standard output and standard error, up to one limit for both together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK = 65536


class Capture:
    """Two pipes and the bytes read from them; whatever exceeds the limit is dropped and sets `full`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most_bytes: int):
        """`most_bytes`: limit for both streams together."""
        self.full = False
        """True once the limit was exceeded."""
        self.cut = 0
        """Bytes that were dropped."""
        self._loop = loop
        self._left = most_bytes
        self._on_full: Callable[[], None] | None = None
        # Not lists of chunks: a program that writes single bytes could make millions of them.
        self._taken: dict[int, bytearray] = {}
        self.write_ends: list[int] = []
        """Descriptors for the program: standard output, standard error."""
        for _ in ("stdout", "stderr"):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            self._taken[read_end] = bytearray()
            self.write_ends.append(write_end)

    def start(self, on_full: Callable[[], None]) -> None:
        """Start reading; `on_full` is called once, when the limit is exceeded."""
        self._on_full = on_full
        for read_end in self._taken:
            self._loop.add_reader(read_end, self._read, read_end)

    def release(self) -> None:
        """Close the host's copies of the write ends, once the worker has received its own."""
        while self.write_ends:
            os.close(self.write_ends.pop())

    def finish(self) -> tuple[bytes, bytes]:
        """Read what is left once every writer is dead; return standard output and standard error."""
        for read_end in self._taken:
            while self._read(read_end):
                pass
        stdout, stderr = map(bytes, self._taken.values())
        return stdout, stderr

    def close(self) -> None:
        """Stop reading and close every descriptor."""
        self.release()
        for read_end in self._taken:
            self._loop.remove_reader(read_end)
            os.close(read_end)

    def _read(self, read_end: int) -> bool:
        """Read one chunk. Return False if none is available now, or at the end of the stream."""
        try:
            chunk = os.read(read_end, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(read_end)
            return False
        if len(chunk) > self._left and not self.full:
            self.full = True
            if self._on_full is not None:
                self._on_full()
        self._taken[read_end] += chunk[: self._left]
        self.cut += max(0, len(chunk) - self._left)
        self._left -= min(len(chunk), self._left)
        return True
