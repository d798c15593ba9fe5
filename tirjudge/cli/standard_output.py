"""Standard output and error that end the command where nobody reads them any more, as behind `| head`."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

UNREAD = 128 + signal.SIGPIPE
"""The exit code that a shell gives for a program which this signal ended."""


@contextmanager
def ending_unread() -> Iterator[None]:
    """A write to a pipe without a reader raises SystemExit with UNREAD, which no handler of errors takes.

    The signal itself stays ignored: connections to endpoints and sandboxes that break would send it too.
    """
    sys.stdout, sys.stderr = _watched(sys.stdout), _watched(sys.stderr)
    try:
        yield
    finally:
        # What the interpreter flushes at its end can only be complained about.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()


class _Watched(io.FileIO):
    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            # Whatever is written on the way out goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            broken = isinstance(error, BrokenPipeError)
            raise SystemExit(UNREAD if broken else f"tirjudge: cannot write: {error.strerror}") from None


def _watched(stream: TextIO) -> TextIO:
    """The same file and manner of writing; a stream that is no file's stays as it is."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = _Watched(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
