"""The writable working folder: lay out files for a program, read files back, and empty the folder."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import sys
from collections.abc import Mapping

_LENGTH = struct.Struct("=q")
_MISSING = -1


def lay(files: Mapping[str, tuple[int, int]], descriptor: int) -> None:
    """Write files, given by relative path, into the current folder. Raises OSError.

    The content of a file is the part of `descriptor` that begins at an offset and has a size.
    """
    made: set[str] = set()
    for path, (start, size) in files.items():
        # Not os.makedirs, which calls itself for each of up to 2,047 folders.
        folder = path.rpartition("/")[0]
        if folder not in made:
            made.add(folder)
            for end in (index for index, mark in enumerate(path) if mark == "/"):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path[:end])
        if not path.endswith("/"):
            with open(path, "wb", 0) as file:
                while size and (sent := os.sendfile(file.fileno(), descriptor, start, size)):
                    start, size = start + sent, size - sent


def fetch(paths: tuple[str, ...], descriptor: int, most_bytes: int) -> None:
    """Copy files of the current folder into `descriptor`, each preceded by its length, -1 if it is missing.

    Symbolic links are not followed: what lies behind one is missing.
    A file that would bring the total above `most_bytes` counts as missing: a sparse file can have any size.
    """
    for path in paths:
        file, size = _regular(path, most_bytes)
        os.write(descriptor, _LENGTH.pack(size))
        if file is not None:
            most_bytes -= size
            # By the kernel: each copy through this process's memory takes as long as the file took to write.
            while size and (sent := os.sendfile(descriptor, file, None, size)):
                size -= sent
            os.close(file)


def fetched(paths: tuple[str, ...], descriptor: int) -> dict[str, bytes]:
    """Read what `fetch` wrote; missing files are left out. Raises ValueError if it is malformed."""
    files, offset, size = {}, 0, os.fstat(descriptor).st_size
    for path in paths:
        start = offset + _LENGTH.size
        # Not `_LENGTH.unpack`, whose error for a record that ends early is no ValueError.
        length = int.from_bytes(os.pread(descriptor, _LENGTH.size, offset), sys.byteorder, signed=True)
        offset = start + max(length, 0)
        if length < _MISSING or offset > size:
            raise ValueError(f"it ends within {path!r}")
        if length != _MISSING:
            # Read at once into its own memory: other threads run meanwhile.
            files[path] = os.pread(descriptor, length, start)
    return files


def most_fetched_bytes(paths: tuple[str, ...], most_bytes: int) -> int:
    """Return the largest size of a record that `fetch` writes."""
    return _LENGTH.size * len(paths) + most_bytes


def wipe(path: str) -> None:
    """Empty a folder, whatever depth and permissions its content has, and reset its times.

    Raises OSError if something remains.
    """
    os.chmod(path, 0o700)
    # A random name, which no program could guess and occupy.
    prefix, moved = os.urandom(8).hex(), 0
    while names := os.listdir(path):
        for name in names:
            entry = os.path.join(path, name)
            if not _open_up(entry):
                os.unlink(entry)
                continue
            # Children are moved up instead of descending into folders, so that no depth can exceed the limits
            # of a path, the stack or the descriptors.
            for child in os.listdir(entry):
                moved += 1
                _open_up(os.path.join(entry, child))
                os.rename(os.path.join(entry, child), os.path.join(path, f"{prefix}-{moved}"))
            os.rmdir(entry)
    # A program could leave a number to the next one in these times.
    os.utime(path, (0, 0))


def _open_up(entry: str) -> bool:
    """Make a folder readable, writable and movable. Return False for anything that is not a folder."""
    if not stat.S_ISDIR(os.lstat(entry).st_mode):
        return False
    os.chmod(entry, 0o700)
    return True


def _opened(path: str) -> int:
    """Return a descriptor of a file in or below the current folder. Raises OSError for a link on the way."""
    *folders, name = [part for part in path.split("/") if part not in ("", ".")]
    inside = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        for folder in folders:
            outside = inside
            inside = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=outside)
            os.close(outside)
        # Not blocking, because the program may have put a pipe in the place of the file.
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside)
    finally:
        os.close(inside)


def _regular(path: str, most_bytes: int) -> tuple[int | None, int]:
    """Return a descriptor of a file of at most so many bytes and its size; None and -1 for anything else."""
    with contextlib.suppress(OSError):
        file = _opened(path)
        state = os.fstat(file)
        if stat.S_ISREG(state.st_mode) and state.st_size <= most_bytes:
            return file, state.st_size
        os.close(file)
    return None, _MISSING
