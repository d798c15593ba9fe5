"""System calls: which calls a program may make, their numbers on each architecture, and how to call.

A program's calls that are not listed here are refused. Left out on purpose: sockets other than a socketpair,
namespaces and mounts, `execve`, ptrace and its kin, memory files (`memfd_create` escapes RLIMIT_AS), System V
IPC, message queues, keys, io_uring, bpf, perf, `sendmsg` (descriptors in flight hold more than a program may
open), epoll (the kernel counts watches by file and descriptor number, so 256 descriptors made four million,
and all programs of a user share one limit), priority and affinity (a program shares its uid with the
supervisor). Numbers: Linux `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping
from types import MappingProxyType

_LIBC = ctypes.CDLL(None, use_errno=True)

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

X32_BIT = 0x4000_0000
"""On x86_64, numbers from here on are the same calls in the x32 ABI."""

_ALLOWED = {
    "x86_64": """
read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 lseek=8 mmap=9 mprotect=10 munmap=11 brk=12
rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 ioctl=16 pread64=17 pwrite64=18 readv=19 writev=20
access=21 pipe=22 select=23 sched_yield=24 mremap=25 msync=26 mincore=27 madvise=28 dup=32 dup2=33
pause=34 nanosleep=35 getitimer=36 alarm=37 setitimer=38 getpid=39 sendfile=40 sendto=44 recvfrom=45
recvmsg=47 shutdown=48 getsockname=51 getpeername=52 socketpair=53 setsockopt=54
getsockopt=55 clone=56 fork=57 vfork=58 exit=60 wait4=61 kill=62 uname=63 fcntl=72 flock=73 fsync=74
fdatasync=75 truncate=76 ftruncate=77 getdents=78 getcwd=79 chdir=80 fchdir=81 rename=82 mkdir=83
rmdir=84 creat=85 link=86 unlink=87 symlink=88 readlink=89 chmod=90 fchmod=91 umask=95 gettimeofday=96
getrlimit=97 getrusage=98 sysinfo=99 times=100 getuid=102 getgid=104 geteuid=107 getegid=108 setpgid=109
getppid=110 getpgrp=111 setsid=112 getgroups=115 getresuid=118 getresgid=120 getpgid=121 getsid=124
capget=125 rt_sigpending=127 rt_sigtimedwait=128 rt_sigqueueinfo=129 rt_sigsuspend=130 sigaltstack=131
utime=132 mknod=133 statfs=137 fstatfs=138 getpriority=140 sched_getparam=143 sched_getscheduler=145
sched_get_priority_max=146 sched_get_priority_min=147 sched_rr_get_interval=148 mlock=149 munlock=150
prctl=157 arch_prctl=158 setrlimit=160 gettid=186 readahead=187 tkill=200 time=201 futex=202
sched_getaffinity=204 getdents64=217 set_tid_address=218 restart_syscall=219
fadvise64=221 timer_create=222 timer_settime=223 timer_gettime=224 timer_getoverrun=225 timer_delete=226
clock_gettime=228 clock_getres=229 clock_nanosleep=230 exit_group=231
tgkill=234 utimes=235 waitid=247 openat=257 mkdirat=258 mknodat=259 futimesat=261 newfstatat=262
unlinkat=263 renameat=264 linkat=265 symlinkat=266 readlinkat=267 fchmodat=268 faccessat=269
pselect6=270 ppoll=271 set_robust_list=273 get_robust_list=274 splice=275 tee=276 sync_file_range=277
utimensat=280 signalfd=282 timerfd_create=283 eventfd=284 fallocate=285
timerfd_settime=286 timerfd_gettime=287 signalfd4=289 eventfd2=290 dup3=292 pipe2=293
preadv=295 pwritev=296 rt_tgsigqueueinfo=297 recvmmsg=299 prlimit64=302 getcpu=309
renameat2=316 getrandom=318 membarrier=324 mlock2=325 copy_file_range=326 preadv2=327 pwritev2=328
statx=332 rseq=334 pidfd_send_signal=424 pidfd_open=434 clone3=435 close_range=436 openat2=437
faccessat2=439 futex_waitv=449 fchmodat2=452
""",
    "aarch64": """
getcwd=17 eventfd2=19 dup=23 dup3=24 fcntl=25 ioctl=29
flock=32 mknodat=33 mkdirat=34 unlinkat=35 symlinkat=36 linkat=37 renameat=38 statfs=43 fstatfs=44
truncate=45 ftruncate=46 fallocate=47 faccessat=48 chdir=49 fchdir=50 fchmod=52 fchmodat=53 openat=56
close=57 pipe2=59 getdents64=61 lseek=62 read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68
preadv=69 pwritev=70 sendfile=71 pselect6=72 ppoll=73 signalfd4=74 splice=76 tee=77 readlinkat=78
newfstatat=79 fstat=80 fsync=82 fdatasync=83 sync_file_range=84 timerfd_create=85
timerfd_settime=86 timerfd_gettime=87 utimensat=88 capget=90 exit=93 exit_group=94 waitid=95
set_tid_address=96 futex=98 set_robust_list=99 get_robust_list=100 nanosleep=101 getitimer=102
setitimer=103 timer_create=107 timer_gettime=108 timer_getoverrun=109 timer_settime=110 timer_delete=111
clock_gettime=113 clock_getres=114 clock_nanosleep=115 sched_getscheduler=120 sched_getparam=121
sched_getaffinity=123 sched_yield=124 sched_get_priority_max=125 sched_get_priority_min=126
sched_rr_get_interval=127 restart_syscall=128 kill=129 tkill=130 tgkill=131 sigaltstack=132
rt_sigsuspend=133 rt_sigaction=134 rt_sigprocmask=135 rt_sigpending=136 rt_sigtimedwait=137
rt_sigqueueinfo=138 rt_sigreturn=139 getpriority=141 getresuid=148 getresgid=150 times=153 setpgid=154
getpgid=155 getsid=156 setsid=157 getgroups=158 uname=160 getrlimit=163 setrlimit=164 getrusage=165
umask=166 prctl=167 getcpu=168 gettimeofday=169 getpid=172 getppid=173 getuid=174 geteuid=175 getgid=176
getegid=177 gettid=178 sysinfo=179 socketpair=199 getsockname=204 getpeername=205 sendto=206
recvfrom=207 setsockopt=208 getsockopt=209 shutdown=210 recvmsg=212 readahead=213 brk=214
munmap=215 mremap=216 clone=220 mmap=222 fadvise64=223 mprotect=226 msync=227 mlock=228 munlock=229
mincore=232 madvise=233 rt_tgsigqueueinfo=240 recvmmsg=243 wait4=260 prlimit64=261
renameat2=276 getrandom=278 membarrier=283 mlock2=284 copy_file_range=285 preadv2=286 pwritev2=287
statx=291 rseq=293 pidfd_send_signal=424 pidfd_open=434 clone3=435 close_range=436 openat2=437
faccessat2=439 futex_waitv=449 fchmodat2=452
""",
}

_UNIX_SOCKETS = {
    "x86_64": """
socket=41 connect=42 accept=43 bind=49 listen=50 sched_setscheduler=144 epoll_create=213 epoll_wait=232
epoll_ctl=233 epoll_pwait=281 accept4=288 epoll_create1=291 epoll_pwait2=441
""",
    "aarch64": """
epoll_create1=20 epoll_ctl=21 epoll_pwait=22 sched_setscheduler=119 socket=198 bind=200 listen=201
accept=202 connect=203 accept4=242 epoll_pwait2=441
""",
}

_NEWER = "mount_setattr=442 landlock_create_ruleset=444 landlock_add_rule=445 landlock_restrict_self=446"
_SETUP = {
    "x86_64": f"capset=126 pivot_root=155 seccomp=317 {_NEWER}",
    "aarch64": f"capset=91 pivot_root=41 seccomp=277 {_NEWER}",
}
_OUTWARD = {
    "x86_64": "socket=41 execve=59 execveat=322 io_uring_setup=425",
    "aarch64": "socket=198 execve=221 execveat=281 io_uring_setup=425",
}


def machine() -> str:
    """Return the architecture of this host. Raises OSError for one without a table."""
    name = os.uname().machine
    if name not in _ALLOWED:
        raise OSError(f"no system call table for {name}; the local sandbox knows {', '.join(_ALLOWED)}")
    return name


@functools.cache
def allowed() -> Mapping[str, int]:
    """Return name and number of every call that a program may make, some only with certain arguments."""
    return MappingProxyType(_numbers(_ALLOWED[machine()]))


def unix_sockets() -> dict[str, int]:
    """Return name and number of the further calls for listening and connecting through ZeroMQ, with epoll."""
    return _numbers(_UNIX_SOCKETS[machine()])


def setup(name: str) -> int:
    """Return the number of a call that only the worker's own preparation makes."""
    return _numbers(_SETUP[machine()])[name]


def outward() -> dict[str, int]:
    """Return name and number of the calls that reach the network or start another executable."""
    return _numbers(_OUTWARD[machine()])


def libc(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call a function of the C library that returns an int. Raises OSError, naming it, when it returns -1."""
    result = int(getattr(_LIBC, name)(*map(_long, arguments)))
    if result == -1:
        _fail(name)
    return result


def make(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make one of the calls that `setup` knows. Raises OSError, naming the call, when it fails."""
    _LIBC.syscall.restype = ctypes.c_long
    result = int(_LIBC.syscall(ctypes.c_long(setup(name)), *map(_long, arguments)))
    if result == -1:
        _fail(name)
    return result


def fails(name: str, *arguments: int) -> int:
    """Make one of the calls of `allowed`, which is expected to fail; return the error's number, 0 without."""
    _LIBC.syscall.restype = ctypes.c_long
    result = int(_LIBC.syscall(ctypes.c_long(allowed()[name]), *map(_long, arguments)))
    return ctypes.get_errno() if result == -1 else 0


def _long(argument: object) -> object:
    # ctypes would pass an int as 32 bits.
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _fail(name: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{name}: {os.strerror(code)}")


def _numbers(text: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (pair.partition("=") for pair in text.split())}
