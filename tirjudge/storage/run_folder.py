"""Run folders: locked JSON lines and atomic writes that survive `kill -9`, and errors of a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Self

JsonObject = dict[str, Any]

LONGEST_LINE = 256 << 20
"""Bytes of a line that is read."""
_BLOCK = 1 << 16
"""Bytes that are read at once when the last line break of a file is searched."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exhausted quota and a limit on file sizes."""
_NO_ROOM_TEXTS = (*(f"(os error {number})" for number in _NO_ROOM), "inline_container.cc")
"""Texts in the errors of safetensors, and in all writing errors of torch's archive writer."""


class Locked(RuntimeError):
    """Another process is writing there; the message names the file."""


class DiskFull(RuntimeError):
    """The disk is full. Everything written so far is intact; the message is one line and names the place."""


class JsonLines:
    """An append-only file of JSON objects, one per line, open for writing and locked until closed.

    Opening drops what follows the last complete line: the rest of a killed writer. With `replace`, it drops
    nothing, and the first rows that are appended replace the whole content. Raises Locked while another
    process has the file open, and OSError if it cannot be written.
    """

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        self.path, self._replace = path, replace
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            _lock(self._descriptor, path)
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

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RunFolder:
    """A folder that one process at a time writes: `append` and `read` JSON lines, `write` whole files.

    Raises Locked while another process has it open. Use it as a context manager, or `close` it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, JsonLines] = {}
        path.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(self._descriptor, path)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Append rows to the JSON lines file `name`; they are on the disk when this returns."""
        if name not in self._files:
            self._files[name] = JsonLines(self.path / name)
        self._files[name].append(*rows)

    def read(self, name: str) -> Iterator[JsonObject]:
        """Read the complete rows of `name`, in the order written; none if there is no such file."""
        return read_lines(self.path / name)

    def write(self, name: str, content: str | bytes) -> None:
        """Replace the file `name` atomically: readers, and a crash, see the old file or the new one."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, content)

    @contextmanager
    def rewrite(self, name: str) -> Iterator[BinaryIO]:
        """Open a new version of the file `name`, which replaces the old one when it is complete.

        Unlike that of `write`, the content need not fit into memory, and rows may be appended afterwards.
        """
        if name in self._files:
            self._files.pop(name).close()  # it would append to the old version
        with complete_file(self.path / name) as file:
            yield file
        _sync_folder(self.path)

    def close(self) -> None:
        for lines in self._files.values():
            lines.close()
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[JsonObject]:
    """Read the complete lines of a JSON lines file, without a torn last line; none if there is no file.

    Raises ValueError, naming file and line, for a line that is not a JSON object.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(bounded_lines(lines, str(path)), 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:  # deeply nested JSON exceeds the recursion limit
                raise ValueError(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: not a JSON object")
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


@contextmanager
def complete_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when it is complete; an error leaves the old content.

    The content is streamed, unlike that of `write_atomically`, which has to fit into memory.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            yield file
            file.flush()
            # Without fsync a crash after the rename could leave an empty file under the final name.
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that it holds the old content or the new one, whenever the machine stops.

    For one writer at a time: hold the lock of the folder, or of the file that this one accompanies. Raises
    OSError, naming the file, and leaves nothing behind if it cannot be written.
    """
    try:
        with complete_file(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Wait until a rename in the folder is on the disk, which happens only once the folder is."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"{path} is being written by another process") from None


def _intact_length(descriptor: int) -> int:
    """Return the bytes up to the end of the last line that is complete and valid JSON."""
    end = _line_end(descriptor, os.fstat(descriptor).st_size)
    while end:
        start = _line_end(descriptor, end - 1)
        try:
            json.loads(os.pread(descriptor, end - start, start))
            return end
        except ValueError:
            end = start
    return 0


def _line_end(descriptor: int, before: int) -> int:
    """Return the offset after the last newline within the first `before` bytes; 0 if there is none."""
    while before:
        start = max(0, before - _BLOCK)
        newline = os.pread(descriptor, before - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        before = start
    return 0


@contextmanager
def disk_full_errors(folder: Path) -> Iterator[None]:
    """Raise DiskFull instead of any error caused by a full disk, a quota or a limit on file sizes."""
    try:
        yield
    except Exception as error:
        if not _caused_by_full_disk(error):
            raise
        place = error.filename if isinstance(error, OSError) and error.filename else folder
        raise DiskFull(
            f"no space left to write {place}: free some, and run the same command again to resume"
        ) from error


def _caused_by_full_disk(error: BaseException | None) -> bool:
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if number in _NO_ROOM or any(text in str(error) for text in _NO_ROOM_TEXTS):
            return True
        # Libraries wrap the error of the operating system in their own.
        error = error.__cause__ or error.__context__
    return False
