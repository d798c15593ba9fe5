"""Run folders: one writer at a time, atomic writes that survive `kill -9`, and errors of a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

from tirjudge.storage.json_lines import JsonLines, JsonObject, lock, read_lines, sync_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, an exhausted quota and a limit on file sizes."""
_NO_ROOM_TEXTS = (*(f"(os error {number})" for number in _NO_ROOM), "inline_container.cc")
"""Texts in the errors of safetensors, and in all writing errors of torch's archive writer."""


class DiskFull(RuntimeError):
    """The disk is full. Everything written so far is intact; the message is one line and names the place."""


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
            lock(self._descriptor, path)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Append rows to the JSON lines file `name`; returns once the rows are on the disk."""
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
        sync_folder(self.path)

    def close(self) -> None:
        for lines in self._files.values():
            lines.close()
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def complete_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that appears under its name only when it is complete; an error leaves the old content.

    The content is streamed, while content for `write_atomically` must fit into memory.
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

    For one writer at a time: hold the lock of the folder, or of the file that the new file accompanies. If
    writing fails, raises OSError that names the file, and leaves nothing behind.
    """
    try:
        with complete_file(path) as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    sync_folder(path.parent)


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
