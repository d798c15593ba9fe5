"""Privileges that a worker gives up irrevocably before it runs programs."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import struct

from tirjudge_sandbox.guest import syscalls

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 4, 23, 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9

_FIXED_LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_MEMLOCK: 0,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_SIGPENDING: 256,
}
"""The limits that are the same for all programs; the others are set for each from its `Limits`."""
_DESCRIPTORS, _DESCRIPTORS_OF_KERNELS = 64, 256
"""Each of a pair of sockets holds 224 KiB that RLIMIT_AS does not count. Kernels of notebooks need more."""


def limit(*, unix_sockets: bool) -> None:
    """Set the limits that are the same for every program of a worker. Raises OSError or ValueError.

    `unix_sockets`: see `Preparation`.
    """
    descriptors = _DESCRIPTORS_OF_KERNELS if unix_sockets else _DESCRIPTORS
    for kind, value in (*_FIXED_LIMITS.items(), (resource.RLIMIT_NOFILE, descriptors)):
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def drop(uid: int | None) -> None:
    """Change to `uid` (None keeps the current one) and drop all capabilities for good. Raises OSError."""
    # In a user namespace this uid is already in effect, and `namespaces.enter` has denied setgroups.
    if uid is not None and os.geteuid() != uid:
        os.setgroups([])
    # Before the change of uid, which takes away the capability that this needs.
    capability = 0
    # A process that may not drop from the bounding set could not gain from it either.
    with contextlib.suppress(PermissionError):
        while _known(capability):
            syscalls.libc("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
            capability += 1
    syscalls.libc("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if uid is not None:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    syscalls.make("capset", header, bytes(24))
    forbid_new()
    # After the change of uid, which clears this setting.
    end_with(os.getppid())


def end_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, its parent, ends. Raises OSError."""
    syscalls.libc("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OSError(errno.ESRCH, "the parent is gone")


def adopt_orphans() -> None:
    """Become the parent of processes that a descendant leaves behind. Raises OSError."""
    syscalls.libc("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def forbid_new() -> None:
    """Set no_new_privs: no later execve grants privileges. Landlock and seccomp need it. Raises OSError."""
    syscalls.libc("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def hide() -> None:
    """Hide this process's memory and descriptors from others of its uid, until an execve. Raises OSError."""
    syscalls.libc("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def _known(capability: int) -> bool:
    try:
        return syscalls.libc("prctl", _PR_CAPBSET_READ, capability, 0, 0, 0) >= 0
    except OSError:
        return False
