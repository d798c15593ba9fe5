"""What a worker gives up, once and for good, before it meets a program."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import struct

from tirjudge_sandbox.guest import libc, syscalls

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 4, 23, 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9

_FIXED_LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_NOFILE: 256,
    resource.RLIMIT_MEMLOCK: 0,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_SIGPENDING: 256,
}
"""What no program may change; the rest is set for each from its `Limits`."""


def limit() -> None:
    """Set the limits that are the same for every program. Raises OSError or ValueError."""
    for kind, value in _FIXED_LIMITS.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def drop(uid: int | None) -> None:
    """Become `uid`, or stay who we are, without capabilities and a way to regain any. Raises OSError."""
    if uid is not None and os.geteuid() != uid:
        os.setgroups([])
    capability = 0
    # Without the privilege to do this there is nothing in the set that could be gained.
    with contextlib.suppress(PermissionError):
        while _known(capability):
            libc.call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
            capability += 1
    libc.call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if uid is not None:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    libc.syscall("capset", syscalls.setup("capset"), header, bytes(24))
    forbid_new()
    # After the change of uid, which would clear it.
    end_with(os.getppid())


def end_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, its parent, ends. Raises OSError."""
    libc.call("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OSError(errno.ESRCH, "the parent is gone")


def adopt_orphans() -> None:
    """Become the parent of whatever a descendant leaves behind. Raises OSError."""
    libc.call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def forbid_new() -> None:
    """Let no later execve grant anything; Landlock and seccomp ask for this. Raises OSError."""
    libc.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def hide() -> None:
    """Shut this process's memory and descriptors to others of its uid, until an execve. Raises OSError."""
    libc.call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def _known(capability: int) -> bool:
    try:
        return libc.call("prctl", _PR_CAPBSET_READ, capability, 0, 0, 0) >= 0
    except OSError:
        return False
