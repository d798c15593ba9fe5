"""The filter that every program's system calls pass: an allow list, a few calls only with certain arguments.

Covered: calls of other ABIs (a 32-bit call kills, an x32 number is refused), calls that reach another process
or the network, calls that allocate memory which no limit counts. Not covered: bugs in the calls that remain.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from tirjudge_sandbox.guest import libc, syscalls

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE = 0, 4
_REFUSE = _ERRNO | errno.EPERM

_NEW_NAMESPACE_OR_PARENT = 0x7E02_8000
"""CLONE_NEW* and CLONE_PARENT, which would make the new process the template's child."""
_AF_UNIX = 1
_STREAMS = tuple(1 | flags for flags in (0, 0o4000, 0o2000000, 0o2004000))
"""SOCK_STREAM, with any of SOCK_NONBLOCK and SOCK_CLOEXEC."""

_ARGUMENTS_ARE: dict[str, tuple[tuple[int, tuple[int, ...]], ...]] = {
    # F_DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, OFD_*, DUPFD_CLOEXEC, GETPIPE_SZ, GET_SEALS.
    # Absent: SETOWN and SETSIG (signals by descriptor), leases, notifications, larger pipes.
    "fcntl": ((1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)),),
    # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
    "ioctl": ((1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),),
    # GET_DUMPABLE, SET_NAME, GET_NAME, CAPBSET_READ, SET_VMA.
    "prctl": ((0, (3, 15, 16, 23, 0x53564D41)),),
    # Another pid's limits, the template's above all, are out of reach.
    "prlimit64": ((0, (0,)),),
    # asyncio's loop wakes itself through a socketpair. One of datagrams could send to any path.
    "socketpair": ((0, (_AF_UNIX,)), (1, _STREAMS)),
}


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")


def install(*, signals: bool) -> None:
    """Filter this process and all it will ever fork. Needs no_new_privs. Raises OSError.

    Without `signals` none can be sent: for a place where other processes could be met.
    """
    program = b"".join(struct.pack("HBBI", *instruction) for instruction in _program(signals=signals))
    wanted = _Filter(len(program) // 8, program)
    set_mode_filter = 1
    libc.syscall("seccomp", syscalls.setup("seccomp"), set_mode_filter, 0, ctypes.addressof(wanted))


def _program(*, signals: bool) -> list[tuple[int, int, int, int]]:
    numbers = syscalls.allowed()
    if not signals:
        numbers = {name: number for name, number in numbers.items() if name not in _SIGNALS}
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, syscalls.AUDIT_ARCH[syscalls.machine()]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, syscalls.X32_BIT),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    # ENOSYS and not EPERM: the C library then falls back to clone, whose flags can be read.
    code += _when(numbers.pop("clone3"), [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)])
    code += _when(
        numbers.pop("clone"),
        [
            (_LOAD, 0, 0, _low_word(0)),
            (_JUMP_BITS, 0, 1, _NEW_NAMESPACE_OR_PARENT),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ],
    )
    for name, conditions in _ARGUMENTS_ARE.items():
        body = [step for position, values in conditions for step in _refuse_unless(position, values)]
        code += _when(numbers.pop(name), [*body, (_RETURN, 0, 0, _ALLOW)])
    for number in sorted(numbers.values()):
        code += _when(number, [(_RETURN, 0, 0, _ALLOW)])
    return [*code, (_RETURN, 0, 0, _REFUSE)]


def _when(number: int, body: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _refuse_unless(position: int, values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    # The kernel reads these arguments as 32-bit numbers, so the low word decides and the high word is noise.
    tests = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(_LOAD, 0, 0, _low_word(position)), *tests, (_RETURN, 0, 0, _REFUSE)]


def _low_word(position: int) -> int:
    """Offset of an argument's low half in `struct seccomp_data`; both architectures are little-endian."""
    return 16 + 8 * position
