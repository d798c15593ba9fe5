"""Landlock: a second wall around the file system, which holds even where a mount was laid wrong."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from tirjudge_sandbox.guest import libc, syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_RIGHTS_BY_ABI = ((1, 13), (2, 14), (3, 15), (5, 16))
"""From which ABI on there are how many rights: REFER came with 2, TRUNCATE with 3, IOCTL_DEV with 5."""
_IOCTL_DEV = 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | _IOCTL_DEV
_NET_ALL = 0b11
_SCOPE_ALL = 0b11
_RULE_PATH_BENEATH = 1
_VERSION = 1


def abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    try:
        return libc.syscall("landlock", syscalls.setup("landlock_create_ruleset"), None, 0, _VERSION)
    except OSError:
        return 0


def restrict(*, read: Sequence[str], write: Sequence[str]) -> None:
    """Leave this process and its children only these paths, and no TCP. Needs no_new_privs, and ABI 1.

    `write` folders may be read, written and rearranged; `write` files read and written. Raises OSError.
    """
    version = abi()
    rights = _rights(version)
    fields = [rights]
    if version >= 4:
        fields.append(_NET_ALL)
    if version >= 6:
        fields.append(_SCOPE_ALL)
    _enter(fields, [(path, _READ) for path in read] + [(path, rights & ~_IOCTL_DEV) for path in write])


def forbid_writing(*, to: Sequence[str]) -> None:
    """Take away every right to write but that to the files `to`. Needs what `restrict` needs."""
    rights = _rights(abi()) & ~_READ
    _enter([rights], [(path, rights & ~_IOCTL_DEV) for path in to])


def _rights(version: int) -> int:
    """All rights to files that a version knows."""
    return (1 << next(count for since, count in reversed(_RIGHTS_BY_ABI) if version >= since)) - 1


def _enter(fields: list[int], rules: list[tuple[str, int]]) -> None:
    attributes = ctypes.create_string_buffer(struct.pack(f"{len(fields)}Q", *fields), 8 * len(fields))
    ruleset = libc.syscall(
        "landlock_create_ruleset", syscalls.setup("landlock_create_ruleset"), attributes, 8 * len(fields), 0
    )
    for path, rights in rules:
        _allow(ruleset, path, rights)
    libc.syscall("landlock_restrict_self", syscalls.setup("landlock_restrict_self"), ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= _FILE_RIGHTS
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
    libc.syscall(
        "landlock_add_rule", syscalls.setup("landlock_add_rule"), ruleset, _RULE_PATH_BENEATH, rule, 0
    )
    os.close(descriptor)
