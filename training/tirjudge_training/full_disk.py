"""Disk-full errors in one line: libraries report them in many ways, some without naming the cause."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SIGNS = (*(f"(os error {number})" for number in NO_ROOM), "inline_container.cc")
"""Texts in the errors of safetensors, and in all writing errors of torch's archive writer."""


class DiskFull(RuntimeError):
    """The disk is full. Everything written so far is intact; the message is one line and names the place."""


@contextmanager
def full_disk_told(folder: Path) -> Iterator[None]:
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
        if number in NO_ROOM or any(sign in str(error) for sign in SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False
