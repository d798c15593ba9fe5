"""A place of its own for a worker: namespaces, and a root folder that shows of the host only Python."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from tirjudge_sandbox.guest import libc, syscalls

NEW_USER = 0x1000_0000
_NEW_ALL = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x2000_0000 | 0x4000_0000
"""Mounts, cgroup, host name, System V IPC, process ids, network."""

_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 5
_MNT_DETACH = 2
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100
_READ_ONLY_NOSUID_NODEV = 0b111

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
WRITABLE_DEVICES = DEVICES[:3]
_SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64")
_SYSTEM_DATA = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
SYSTEM = (*_SYSTEM_LIBRARIES, *_SYSTEM_DATA)
"""What of the system an interpreter and its packages load; any of it may be missing."""
INODES = 4096
"""How many files and folders a program may keep at once."""


def enter(*, own_user: bool, inner_uid: int) -> None:
    """Leave the host's namespaces; the next fork is PID 1. With `own_user`, no privilege is needed.

    Raises OSError naming the step.
    """
    uid, gid = os.geteuid(), os.getegid()
    libc.call("unshare", _NEW_ALL | (NEW_USER if own_user else 0))
    if own_user:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{inner_uid} {uid} 1")
        _write("/proc/self/gid_map", f"{inner_uid} {gid} 1")


def pivot(binds: Sequence[tuple[str, str]], scratch: str, *, scratch_bytes: int, owner: int) -> None:
    """Make a small read-only tree the root folder, with one writable folder of a fixed size.

    `binds` are pairs of a path of the host, without symbolic links, and the path it gets. Raises OSError.
    """
    libc.call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    base = next(path for path in ("/tmp", "/dev", "/usr") if os.path.isdir(path))
    _mount_tmpfs(base, "size=1m,mode=0755")
    os.mkdir(base + "/host")
    libc.syscall("pivot_root", syscalls.setup("pivot_root"), os.fsencode(base), os.fsencode(base + "/host"))
    os.chdir("/")
    # Only now: the new root covered a folder of the host, and through the old root that can be reached again.
    for source, target in [*binds, *_system_binds()]:
        _bind("/host" + source, target)
    _make_devices()
    os.mkdir(scratch)
    _mount_tmpfs(
        scratch, f"size={scratch_bytes},nr_inodes={INODES},mode=0700,uid={owner},gid={owner}", _MS_NOEXEC
    )
    os.symlink(scratch, "/dev/shm")
    libc.call("umount2", b"/host", _MNT_DETACH)
    os.rmdir("/host")
    libc.call("mount", None, b"/", None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None)


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


def _bind(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        _write(target, "")
    libc.call("mount", os.fsencode(source), os.fsencode(target), None, _MS_BIND | _MS_REC, None)
    # A plain remount would leave the mounts beneath this one writable.
    attributes = struct.pack("4Q", _READ_ONLY_NOSUID_NODEV, 0, 0, 0)
    number = syscalls.setup("mount_setattr")
    libc.syscall("mount_setattr", number, _AT_FDCWD, os.fsencode(target), _AT_RECURSIVE, attributes, 32)


def _make_devices() -> None:
    os.makedirs("/dev", exist_ok=True)
    for path in DEVICES:
        _write(path, "")
        # Bound and not made: mknod is refused in a user namespace.
        libc.call("mount", f"/host{path}".encode(), path.encode(), None, _MS_BIND, None)


def _mount_tmpfs(path: str, options: str, flags: int = 0) -> None:
    flags |= _MS_NOSUID | _MS_NODEV
    libc.call("mount", b"tmpfs", os.fsencode(path), b"tmpfs", flags, options.encode())


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
