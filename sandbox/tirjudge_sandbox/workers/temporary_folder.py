"""Temporary folders of workers, which do not remain if this process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "tirjudge-sandbox-"


class TemporaryFolder:
    """An empty folder, closed to other users. Closing it removes it.

    It is locked for as long as this process lives. Whoever makes a folder removes those that nobody has
    locked, which are those of killed processes.
    """

    def __init__(self) -> None:
        """Raises OSError."""
        _remove_abandoned()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            # Until it is locked, another process may take it for abandoned.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                self._lock = _locked(self.path, fcntl.LOCK_SH)
                if self.path.exists():
                    break
                os.close(self._lock)

    def close(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _locked(path: Path, kind: int) -> int:
    """Return a descriptor of a folder with a lock. Raises BlockingIOError if another process has one."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid == os.geteuid():
                descriptor = _locked(path, fcntl.LOCK_EX)
                shutil.rmtree(path, ignore_errors=True)
                os.close(descriptor)
