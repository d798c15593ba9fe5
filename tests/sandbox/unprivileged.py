"""Run a command as another user: `python unprivileged.py UID COMMAND...`, as root.

Everyone may read our Python then, as where it is installed for all: folders like /root, which are closed to
others, are covered, in a mount namespace of our own, by open ones into which only what is needed is bound.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tirjudge_sandbox.guest import syscalls

_NEW_MOUNTS, _BIND_ALL, _PRIVATE_ALL = 0x20000, 0x5000, 0x44000


def main() -> None:
    syscalls.libc("unshare", _NEW_MOUNTS)
    syscalls.libc("mount", None, b"/", None, _PRIVATE_ALL, None)
    repository = Path(__file__).parents[2]
    _open_up({Path(os.path.realpath(path)) for path in (sys.prefix, sys.base_prefix, repository)})
    os.chdir(repository)
    user, command = int(sys.argv[1]), sys.argv[2:]
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.environ.update(HOME="/tmp", PYTHONDONTWRITEBYTECODE="1")
    os.execv(command[0], command)


def _open_up(needed: set[Path]) -> None:
    closed = {path: _closed_ancestor(path) for path in needed}
    held = {path: os.open(path, os.O_PATH) for path, ancestor in closed.items() if ancestor}
    for ancestor in {ancestor for ancestor in closed.values() if ancestor}:
        syscalls.libc("mount", b"tmpfs", os.fsencode(ancestor), b"tmpfs", 0, b"mode=0755")
    for path, descriptor in held.items():
        path.mkdir(parents=True, exist_ok=True)
        syscalls.libc(
            "mount", f"/proc/self/fd/{descriptor}".encode(), os.fsencode(path), None, _BIND_ALL, None
        )


def _closed_ancestor(path: Path) -> Path | None:
    """The topmost folder on the way to `path` that others may not pass."""
    return next((folder for folder in (*reversed(path.parents), path) if not folder.stat().st_mode & 1), None)


if __name__ == "__main__":
    main()
