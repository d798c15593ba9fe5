"""Landlock: a second layer of protection for the file system, which holds even if a mount is wrong."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from tirjudge_sandbox.guest import syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_RIGHTS_BY_ABI = ((1, 13), (2, 14), (3, 15), (5, 16))
"""Pairs of an ABI version and its number of rights: REFER came with 2, TRUNCATE with 3, IOCTL_DEV with 5."""
_IOCTL_DEV = 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | 1 << 14 | _IOCTL_DEV
_NET_ALL = 0b11
_SCOPE_ALL = 0b11
_RULE_PATH_BENEATH = 1
_VERSION = 1


def abi() -> int:
    """Return the kernel's Landlock version, 0 where there is none."""
    try:
        return syscalls.make("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def ruleset(*, read: Sequence[str], write: Sequence[str]) -> int:
    """Return a descriptor of rules for `enter`, which allow these paths alone, and no TCP. Needs ABI 1.

    `read`: files and folders to read. `write`: folders to read, write and rearrange, and files to read and
    write. Raises OSError.
    """
    version = abi()
    rights = _rights(version)
    # A kernel refuses rights and fields that are newer than its own version.
    fields = [rights]
    if version >= 4:
        fields.append(_NET_ALL)
    if version >= 6:
        fields.append(_SCOPE_ALL)
    return _made(fields, [(path, _READ) for path in read] + [(path, rights & ~_IOCTL_DEV) for path in write])


def enter(ruleset: int) -> None:
    """Restrict this process and its children to a `ruleset`, and close it. Needs no_new_privs.

    Raises OSError.
    """
    syscalls.make("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def forbid_writing(*, to: Sequence[str]) -> None:
    """Deny writing to anything but the files `to`. Needs ABI 1 and no_new_privs. Raises OSError."""
    rights = _rights(abi()) & ~_READ
    enter(_made([rights], [(path, rights & ~_IOCTL_DEV) for path in to]))


def _rights(version: int) -> int:
    """Return the mask of all file rights that an ABI version knows."""
    return (1 << next(count for since, count in reversed(_RIGHTS_BY_ABI) if version >= since)) - 1


def _made(fields: list[int], rules: list[tuple[str, int]]) -> int:
    attributes = ctypes.create_string_buffer(struct.pack(f"{len(fields)}Q", *fields), 8 * len(fields))
    ruleset = syscalls.make("landlock_create_ruleset", attributes, 8 * len(fields), 0)
    for path, rights in rules:
        _allow(ruleset, path, rights)
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        # Which system folders exist differs between distributions.
        return
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= _FILE_RIGHTS
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
    syscalls.make("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, rule, 0)
    os.close(descriptor)
