"""The system call filters of every program: an allow list, with some calls limited to certain arguments.

A second filter, which is loaded for each program, decides whether it may fork, and keeps a program without a
process namespace from reaching any other process.

The filters stop calls of other ABIs (a 32-bit call kills, an x32 number is refused), calls that reach another
process or the network, and calls that allocate memory which no limit counts. They do not protect against bugs
of the kernel in the calls that remain.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from itertools import chain

from tirjudge_sandbox.guest import syscalls

_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_JUMP = 0x05
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE = 0, 4
_REFUSE = _ERRNO | errno.EPERM
_PRETEND = _ERRNO
"""Return 0 as if the call had succeeded."""

_NEW_NAMESPACE_OR_PARENT = 0x7E02_8000
"""CLONE_NEW* and CLONE_PARENT, which would make the new process the supervisor's child."""
_THREAD = 0x1_0000
"""CLONE_THREAD, with which the kernel insists on shared memory too."""
_AF_UNIX = 1
_STREAMS = tuple(1 | flags for flags in (0, 0x800, 0x8_0000, 0x8_0800))
"""SOCK_STREAM, with or without NONBLOCK and CLOEXEC. A pair of datagram sockets can send to any other."""

_ARGUMENTS_ARE: dict[str, dict[int, tuple[int, ...]]] = {
    # F_DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, OFD_GETLK, DUPFD_CLOEXEC, GETPIPE_SZ, GET_SEALS.
    # Absent: SETOWN and SETSIG (signals by descriptor), leases, notifications, larger pipes.
    "fcntl": {1: (0, 1, 2, 3, 4, 5, 36, 1030, 1032, 1034)},
    # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
    "ioctl": {1: (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)},
    # GET_DUMPABLE, SET_NAME, GET_NAME, CAPBSET_READ, SET_VMA.
    "prctl": {0: (3, 15, 16, 23, 0x53564D41)},
    # Another pid's limits, the supervisor's above all, are out of reach.
    "prlimit64": {0: (0,)},
    # SET_MODE_FILTER without flags: a program's own filter, which refuses this call from then on.
    "seccomp": {0: (1,), 1: (0,)},
    # asyncio's loop wakes itself through a socketpair.
    "socketpair": {0: (_AF_UNIX,), 1: _STREAMS},
    # SOL_SOCKET with REUSEADDR, KEEPALIVE, LINGER, PASSCRED, RCVTIMEO, SNDTIMEO. Absent: ATTACH_FILTER, and
    # SNDBUF and RCVBUF, with which each socket could hold megabytes of the kernel's memory.
    "setsockopt": {1: (1,), 2: (2, 9, 13, 16, 20, 21)},
}
_SOCKETS_ARE: dict[str, dict[int, tuple[int, ...]]] = {
    "socket": {0: (_AF_UNIX,), 1: _STREAMS},
    # SCHED_OTHER, which every thread has already: ZeroMQ insists on saying so.
    "sched_setscheduler": {1: (0,)},
}
_LOCKS = (6, 7, 37, 38)
"""SETLK, SETLKW, OFD_SETLK and OFD_SETLKW. Like `flock` they only seem to succeed: through locks on the files
of libraries, which all see, programs could signal each other."""
_REFUSAL = {"socket": _ERRNO | errno.EINVAL}
"""The error that ZeroMQ accepts where there is no network; EPERM would abort the process."""

_FORKS = ("fork", "vfork")
_NO_FORK = _ERRNO | errno.EAGAIN
"""The error that the kernel gives at the limit of processes."""
_NOT_WITH_PATHS = (
    # Landlock controls none of these; its first versions do not control truncation either.
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "truncate"),
    *("utime", "utimes", "futimesat", "utimensat"),
    # Its flags lie in memory, which a filter cannot read.
    "openat2",
)
_OF_PROCESS = {"getpriority": 1} | dict.fromkeys(
    (
        *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "setpgid"),
        *("getpgid", "getsid", "get_robust_list", "sched_getaffinity", "sched_getparam"),
        *("sched_getscheduler", "sched_rr_get_interval"),
    ),
    0,
)
"""Calls that act on a process, and the position of the argument that holds its id."""
_OF_CLOCK = ("clock_gettime", "clock_getres", "clock_nanosleep", "timer_create")
"""Calls whose first argument is a clock. That of a process's CPU time holds, negated, the process's id."""
_CLOCK_OF_PID, _CLOCK_KIND_BITS = 1 << 31, 3
_OPEN_FLAGS = {"open": 1, "openat": 2}
_ACCESS_OR_TRUNCATE, _TRUNCATE = 0o1003, 0o1000

_Code = list[tuple[int, int, int, int]]
_INSTRUCTION = struct.Struct("HBBI")


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def load(program: bytes) -> None:
    """Filter this process and all its future children. Needs no_new_privs. Raises OSError."""
    wanted = _Filter(len(program) // _INSTRUCTION.size, program)
    set_mode_filter = 1
    syscalls.make("seccomp", set_mode_filter, 0, ctypes.addressof(wanted))


def allow_list(*, unix_sockets: bool = False) -> bytes:
    """Return the filter for every program, after which only `of_program` can be loaded.

    `unix_sockets`: programs may also listen on and connect to stream sockets of AF_UNIX.
    """
    numbers = {**syscalls.allowed(), **(syscalls.unix_sockets() if unix_sockets else {})}
    numbers["seccomp"] = syscalls.setup("seccomp")
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, syscalls.AUDIT_ARCH[syscalls.machine()]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_AT_LEAST, 0, 1, syscalls.X32_BIT),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    # ENOSYS and not EPERM: the C library then falls back to clone, whose flags a filter can read.
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
    for name in _OF_CLOCK:
        code += _when(numbers.pop(name), _unless_clock_of_the_first_process())
    code += _when(numbers.pop("flock"), [(_RETURN, 0, 0, _PRETEND)])
    # Not popped: commands that are no locks go on to the tests of `_ARGUMENTS_ARE`.
    code += _when(numbers["fcntl"], _pretended(1, _LOCKS))
    for name, wanted in (_ARGUMENTS_ARE | (_SOCKETS_ARE if unix_sockets else {})).items():
        refusal = _REFUSAL.get(name, _REFUSE)
        tests = [_one_of(position, values, refusal) for position, values in wanted.items()]
        code += _when(numbers.pop(name), [*chain(*tests), (_RETURN, 0, 0, _ALLOW)])
    for number in sorted(numbers.values()):
        code += _when(number, [(_RETURN, 0, 0, _ALLOW)])
    return _packed([*code, (_RETURN, 0, 0, _REFUSE)])


def inward() -> bytes:
    """Return the filter for a supervisor that takes no `allow_list`: no network, and no other executable."""
    refused = [_when(number, [(_RETURN, 0, 0, _REFUSE)]) for number in syscalls.outward().values()]
    return _packed([(_LOAD, 0, 0, _NUMBER), *chain(*refused), (_RETURN, 0, 0, _ALLOW)])


def of_program(*, forks: bool, threads: bool, alone_as: int | None) -> bytes:
    """Return the filter for one program, the last one: it allows loading no other.

    `forks`, `threads`: it may make processes, threads. `alone_as`: its process id if it shares its PID
    namespace with others. Then it may make calls about a process only about itself, and may not change what
    Landlock does not control either: modes and times of files, and the length of a file that is opened with
    O_TRUNC.
    """
    # Errors of the first filter come before what this one allows, so it needs no test of the architecture.
    code: _Code = [(_LOAD, 0, 0, _NUMBER)]
    code += _when(syscalls.setup("seccomp"), [(_RETURN, 0, 0, _REFUSE)])
    for name, number in syscalls.allowed().items():
        if name in _FORKS and not forks:
            code += _when(number, [(_RETURN, 0, 0, _NO_FORK)])
        elif name == "clone" and not forks:
            allowed = [(_JUMP_BITS, 0, 1, _THREAD), (_RETURN, 0, 0, _ALLOW)] if threads else []
            code += _when(number, [(_LOAD, 0, 0, _low_word(0)), *allowed, (_RETURN, 0, 0, _NO_FORK)])
        elif alone_as is None:
            continue
        elif name in _NOT_WITH_PATHS:
            code += _when(number, [(_RETURN, 0, 0, _REFUSE)])
        elif name in _OF_PROCESS:
            code += _when(number, [*_one_of(_OF_PROCESS[name], (0, alone_as)), (_RETURN, 0, 0, _ALLOW)])
        elif name in _OF_CLOCK:
            code += _when(number, _only_clocks_of(alone_as))
        elif name in _OPEN_FLAGS:
            code += _when(number, _unless_only_truncating(_OPEN_FLAGS[name]))
    return _packed([*code, (_RETURN, 0, 0, _ALLOW)])


def _packed(code: _Code) -> bytes:
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


def _unless_only_truncating(position: int) -> _Code:
    """Refuse O_TRUNC without an access mode for writing, which Landlock before ABI 3 treats as reading."""
    return [
        (_LOAD, 0, 0, _low_word(position)),
        (_AND, 0, 0, _ACCESS_OR_TRUNCATE),
        (_JUMP_EQUAL, 1, 0, _TRUNCATE),
        (_JUMP_EQUAL, 0, 1, _ACCESS_OR_TRUNCATE),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _unless_clock_of_the_first_process() -> _Code:
    """Refuse clocks of PID 1, which inside namespaces is the supervisor: its time tells of other programs."""
    return [
        (_LOAD, 0, 0, _low_word(0)),
        (_AND, 0, 0, 0xFFFF_FFFF - (1 << _CLOCK_KIND_BITS) + 1),
        (_JUMP_EQUAL, 0, 1, _clock(1)),
        (_RETURN, 0, 0, _ERRNO | errno.EINVAL),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _only_clocks_of(own: int) -> _Code:
    """Refuse the CPU clocks of all processes but `own`, for which 0 stands too."""
    kinds = range(1 << _CLOCK_KIND_BITS)
    clocks = tuple(_clock(pid) | kind for pid in (0, own) for kind in kinds)
    return [
        (_LOAD, 0, 0, _low_word(0)),
        (_JUMP_AT_LEAST, 1, 0, _CLOCK_OF_PID),
        (_RETURN, 0, 0, _ALLOW),
        *_one_of(0, clocks, _ERRNO | errno.EINVAL),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _clock(pid: int) -> int:
    """Return the first of the eight ids of a process's CPU clocks, as a 32-bit number."""
    return ~pid << _CLOCK_KIND_BITS & 0xFFFF_FFFF


def _when(number: int, body: _Code) -> _Code:
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _pretended(position: int, values: tuple[int, ...]) -> _Code:
    """Pretend success if the argument is one of `values`, otherwise continue with the next instruction."""
    tests = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    # The instructions that follow compare the number of the call.
    rest = [(_JUMP, 0, 0, 1), (_RETURN, 0, 0, _PRETEND), (_LOAD, 0, 0, _NUMBER)]
    return [(_LOAD, 0, 0, _low_word(position)), *tests, *rest]


def _one_of(position: int, values: tuple[int, ...], refusal: int = _REFUSE) -> _Code:
    """Continue with the next instruction if the argument is one of `values`, refuse otherwise."""
    # The kernel reads these arguments as 32-bit numbers and ignores the high word.
    tests = [(_JUMP_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(_LOAD, 0, 0, _low_word(position)), *tests, (_RETURN, 0, 0, refusal)]


def _low_word(position: int) -> int:
    """Return the offset of an argument's low half in `struct seccomp_data` (little-endian architectures)."""
    return 16 + 8 * position
