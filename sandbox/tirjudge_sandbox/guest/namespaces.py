"""Namespaces of a worker, and its root folder, which shows nothing of the host but Python."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from tirjudge_sandbox.guest import syscalls

ROOT, USERNS, OWN_UID, PLAIN = "root", "userns", "own-uid", "plain"
"""Placements on a host. `root` and `userns` use namespaces, made with privileges or in a user namespace;
`own-uid` and `plain` do without, under a uid of the worker's own or that of the host's process. A worker in a
container has the placement `container`."""
WITHOUT_NAMESPACES = (OWN_UID, PLAIN)

NEW_USER = 0x1000_0000
_NEW_ALL = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000 | 0x4000_0000
"""Namespaces of mounts, control groups, host name, System V IPC, process ids and network."""

_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 5
_MNT_DETACH = 2
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_READ_ONLY, _NOSUID, _NODEV = 1, 2, 4

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
WRITABLE_DEVICES = DEVICES[:3]
_SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64")
_SYSTEM_DATA = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
SYSTEM = (*_SYSTEM_LIBRARIES, *_SYSTEM_DATA)
"""The files and folders of the system that an interpreter and its packages load; any may be missing."""


def enter(*, own_user: bool, inner_uid: int) -> None:
    """Enter new namespaces; the next forked child is PID 1 there. With `own_user`, no privilege is needed.

    Raises OSError naming the step.
    """
    uid, gid = os.geteuid(), os.getegid()
    syscalls.libc("unshare", _NEW_ALL | (NEW_USER if own_user else 0))
    if own_user:
        # Without privileges, the kernel accepts a gid_map only after setgroups is denied.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{inner_uid} {uid} 1")
        _write("/proc/self/gid_map", f"{inner_uid} {gid} 1")


def pivot(
    binds: Sequence[tuple[str, str]], scratch: str, *, hidden: Sequence[str] = (), folder: str, owner: int
) -> None:
    """Replace the root folder by a small read-only tree with one writable folder.

    `binds`: pairs of a path of the host, without symbolic links, and its path inside. `hidden`: files inside
    that are to be empty. `folder`: mount options of the folder `scratch`. `owner`: its uid and gid. Raises
    OSError.
    """
    # pivot_root refuses shared mounts, through which mounts made here could also appear on the host.
    syscalls.libc("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    base = next(path for path in ("/tmp", "/dev", "/usr") if os.path.isdir(path))
    _mount_tmpfs(base, "size=1m,mode=0755")
    os.mkdir(base + "/host")
    syscalls.make("pivot_root", os.fsencode(base), os.fsencode(base + "/host"))
    os.chdir("/")
    # Only after pivoting: the new root covers a folder of the host, which is reachable through the old root.
    for source, target in [*binds, *_system_binds()]:
        _bind("/host" + source, target, _READ_ONLY | _NOSUID | _NODEV)
    _hide(hidden)
    for path in DEVICES:
        # Mounted from the host, since a user namespace does not allow mknod. A device on a read-only mount
        # can be written to, while its times, which are the host's, cannot be changed.
        _bind("/host" + path, path, _READ_ONLY | _NOSUID)
    os.mkdir(scratch)
    _mount_tmpfs(scratch, f"{folder},uid={owner},gid={owner}", _MS_NOEXEC)
    # Semaphores of `multiprocessing` are files in /dev/shm: as a link, it shares the bounds of this folder.
    os.symlink(scratch, "/dev/shm")
    # Detached, because the other mounts of the host are still beneath it.
    syscalls.libc("umount2", b"/host", _MNT_DETACH)
    os.rmdir("/host")
    syscalls.libc(
        "mount", None, b"/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None
    )


def _system_binds() -> list[tuple[str, str]]:
    binds = []
    for path in SYSTEM:
        host = "/host" + path
        if os.path.islink(host) and not path.startswith("/etc"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(os.readlink(host), path)
        elif os.path.exists(host):
            binds.append((path, path))
    return binds


def _bind(source: str, target: str, attributes: int) -> None:
    """Show a file or folder at another path, with attributes for its mount and those beneath it."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        _write(target, "")
    _cover(source, target, attributes)


def _hide(paths: Sequence[str]) -> None:
    """Cover files, which are on read-only mounts, by an empty one."""
    empty = "/empty"
    _write(empty, "")
    # Each once: a second cover would lie on the first one, which could then not be removed.
    for path in set(paths):
        if os.path.exists(path):
            _cover(empty, path, _READ_ONLY | _NOSUID | _NODEV)
    os.unlink(empty)


def _cover(source: str, target: str, attributes: int) -> None:
    syscalls.libc("mount", os.fsencode(source), os.fsencode(target), None, _MS_BIND | _MS_REC, None)
    # A plain remount would leave the mounts beneath this one writable.
    packed = struct.pack("4Q", attributes, 0, 0, 0)
    syscalls.make("mount_setattr", _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, packed, 32)


def _mount_tmpfs(path: str, options: str, flags: int = 0) -> None:
    flags |= _MS_NOSUID | _MS_NODEV
    syscalls.libc("mount", b"tmpfs", os.fsencode(path), b"tmpfs", flags, options.encode())


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
