"""Files that survive `kill -9`: append-only JSON lines, atomic writes, and a lock on both."""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

JsonObject = dict[str, Any]

_BLOCK = 1 << 16


class Locked(RuntimeError):
    """Another process is writing there; the text names the file."""


class JsonLines:
    """An append-only file of JSON objects, one a line, open for writing and locked until closed.

    Whatever follows the last complete line is what a killed writer left: opening drops it.
    Raises Locked while another process has the file open, OSError when it cannot be written.
    """

    def __init__(self, path: Path, *, truncate: bool = False) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            _lock(self._descriptor, path)
            self._end = 0 if truncate else _intact_length(self._descriptor)
            os.ftruncate(self._descriptor, self._end)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, *rows: Mapping[str, Any]) -> None:
        """Add rows; on return they are on the disk. After an OSError none of them is.

        Floats that JSON has no word for (nan, inf) are written as null.
        """
        block = b"".join(encode_line(row) for row in rows)
        try:
            view = memoryview(block)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, self._end)
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._end += len(block)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RunFolder:
    """A folder that one process writes at a time: `append` and `read` JSON lines, `write` whole files.

    Raises Locked while another process has it open. Use as a context manager, or `close` it.
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
        """Add rows to the JSON lines file `name`; on return they are on the disk."""
        if name not in self._files:
            self._files[name] = JsonLines(self.path / name)
        self._files[name].append(*rows)

    def read(self, name: str) -> Iterator[JsonObject]:
        """The complete rows of `name`, in the order written; none if there is no such file."""
        return read_lines(self.path / name)

    def write(self, name: str, content: str | bytes) -> None:
        """Replace the file `name` as a whole: a reader, and a crash, see the old one or the new."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, content)

    def close(self) -> None:
        for lines in self._files.values():
            lines.close()
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_lines(path: Path) -> Iterator[JsonObject]:
    """The complete lines of a JSON lines file, torn last line left out; none if there is no file.

    Raises ValueError, naming file and line, for a line that is no JSON object.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: not a JSON object")
            yield row


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that, whenever the machine stops, it holds the old content or the new one.

    For one writer at a time: hold the lock of the folder, or of the file this one stands beside. Raises
    OSError, naming the file, and leaves nothing behind where it cannot be written.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def encode_line(row: Mapping[str, Any]) -> bytes:
    """One JSON line in UTF-8; text that UTF-8 cannot hold (lone surrogates) is written as escapes."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        row = _finite(row)
        text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False).encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(f"{path} is being written by another process") from None


def _intact_length(descriptor: int) -> int:
    """Bytes up to the end of the last line that is complete and JSON."""
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
    """Where the last line that ends at or before `before` bytes ends; 0 if none does."""
    while before:
        start = max(0, before - _BLOCK)
        newline = os.pread(descriptor, before - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        before = start
    return 0
