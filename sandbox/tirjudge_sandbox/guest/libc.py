"""The C library, with errno turned into OSError."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call a libc function that returns an int. Raises OSError naming the function when it returns -1."""
    result = int(getattr(_LIBC, name)(*map(_long, arguments)))
    if result == -1:
        _fail(name)
    return result


def syscall(name: str, number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call by number. Raises OSError naming the call when it fails."""
    _LIBC.syscall.restype = ctypes.c_long
    result = int(_LIBC.syscall(ctypes.c_long(number), *map(_long, arguments)))
    if result == -1:
        _fail(name)
    return result


def _long(argument: object) -> object:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _fail(name: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{name}: {os.strerror(code)}")
