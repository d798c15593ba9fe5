"""Files of JSON lines: locked while they are written, and intact after `kill -9`."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Self

JsonObject = dict[str, Any]

LONGEST_LINE = 256 << 20
"""Bytes of a line that is read."""
_BLOCK = 1 << 16
"""Bytes that are read at once when the last line break of a file is searched."""


class Locked(RuntimeError):
    """Another process is writing there; the message names the file."""


class JsonLines:
    """An append-only file of JSON objects, one per line, open for writing and locked until closed.

    Opening drops what follows the last complete line: the rest of a killed writer. With `replace`, it drops
    nothing, and the first rows that are appended replace the whole content. Raises Locked while another
    process has the file open, and OSError if it cannot be written.
    """

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        self.path, self._replace = path, replace
        # Locked before the torn last line is dropped: another process may just be writing that line.
        self._descriptor = _opened_and_locked(path)
        try:
            self._end = 0 if replace else _intact_length(self._descriptor)
            if not replace:
                os.ftruncate(self._descriptor, self._end)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Append rows; they are on the disk when this returns. After an OSError no row is.

        Floats that JSON cannot represent (nan, inf) are written as null.
        """
        block = b"".join(encode_line(row) for row in rows)
        if self._replace:
            os.ftruncate(self._descriptor, 0)
            self._replace = False
        try:
            view = memoryview(block)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)
        except OSError as error:
            # Drop the part that was written, so that no later row follows a torn one.
            os.ftruncate(self._descriptor, self._end)
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._end += len(block)

    def rename(self, path: Path) -> None:
        """Rename the file to `path`, replacing any other file there, and keep the lock."""
        os.replace(self.path, path)
        self.path = path
        sync_folder(path.parent)

    def close(self) -> None:
        """Close the file; closing it again does nothing, like for Python's files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class BadLine(ValueError):
    """A line of a JSON lines file is not a JSON object; the message names file and line."""


def read_lines(path: Path) -> Iterator[JsonObject]:
    """Read the complete lines of a JSON lines file, without a torn last line; none if there is no file.

    Raises BadLine for a line that is not a JSON object.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(bounded_lines(lines, str(path)), 1):
            if not line.endswith(b"\n"):
                return
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # deeply nested JSON exceeds the recursion limit
                raise BadLine(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise BadLine(f"{path}:{number}: not a JSON object")
            yield row


def bounded_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the lines of a file. Raises ValueError for a line too long for memory, such as `/dev/zero` is."""
    for number in count(1):
        line = stream.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise ValueError(f"{name}:{number}: a line may have {LONGEST_LINE >> 20} MiB")
        if not line:
            return
        yield line


def encode_line(row: Mapping[str, Any]) -> bytes:
    """Encode a JSON line in UTF-8; text that UTF-8 cannot represent (lone surrogates) is escaped."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        row = finite(row)
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def finite(value: Any) -> Any:
    """Return a JSON value with null in place of the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _opened_and_locked(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            lock(descriptor, path)
            # Before it was locked, a writer that has ended may have replaced the file by a new one.
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def lock(descriptor: int, path: Path) -> None:
    """Lock an open file until it is closed. Raises Locked if another process has it."""
    try:
        # The kernel frees this lock when the process ends, also after `kill -9`.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"{path} is being written by another process") from None


def _intact_length(descriptor: int) -> int:
    """Return the bytes up to the end of the last line that is complete and valid JSON."""
    end = line_end(descriptor, os.fstat(descriptor).st_size)
    while end:
        # A crash may leave zeros or half a row in front of a line break, hence the parsing.
        start = line_end(descriptor, end - 1)
        try:
            json.loads(os.pread(descriptor, end - start, start))
            return end
        except ValueError:
            end = start
        except RecursionError:  # too deeply nested to be read, but not torn
            return end
    return 0


def sync_folder(path: Path) -> None:
    """Wait until a rename in the folder is on the disk, which happens only once the folder is."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def line_end(descriptor: int, before: int) -> int:
    """Return the offset after the last newline within the first `before` bytes; 0 if there is none."""
    while before:
        start = max(0, before - _BLOCK)
        newline = os.pread(descriptor, before - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        before = start
    return 0
