"""The supervisor: a warm interpreter, PID 1 of its namespaces, that forks once for every program.

It never reads sources, bindings, stdin or output: a later program inherits its heap, and would find there
whatever the supervisor had decoded and freed.
"""

from __future__ import annotations

import _multiprocessing
import array
import contextlib
import errno
import gc
import importlib
import json
import math
import os
import resource
import select
import selectors
import signal
import site
import socket
import sys
import time
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from tirjudge_sandbox.guest import (
    import_policy,
    landlock,
    memory,
    namespaces,
    prepared,
    privileges,
    program,
    scratch,
    seccomp,
    syscalls,
)
from tirjudge_sandbox.guest.settings import Inside
from tirjudge_sandbox.guest.wire import CANCEL, MOST_DESCRIPTORS, RECORD_BYTES, UNLAID, Ending, Job, Payload

_MOST_BASE_PROCESSES = 64
_OF_THE_HOST = ("/", "/dev/shm", "/etc/passwd", "/home", "/proc", "/root", "/sys", "/tmp", "/var")
"""Paths of the host to test, some of which exist on every machine; none may be readable."""
_CLONE_INTO_NOWHERE = 0x0000_1F00
"""CLONE_VM, FS, FILES, SIGHAND and PIDFD."""
_LONGEST_POLL = 3_600_000
"""Milliseconds. poll cannot wait for longer than 24 days."""


def main() -> None:
    """Prepare, report the result, and serve programs until the host closes the control socket."""
    settings = Inside.from_json(sys.argv[1])
    control = socket.socket(fileno=int(sys.argv[2]))
    files = memory.KernelFiles.of_parent(sys.argv[3])
    try:
        mapped = memory.Mapped(files.process)
        if files.ruleset is not None:
            landlock.enter(files.ruleset)
        supervisor = Supervisor(control, settings, files, mapped)
    except OSError as error:
        control.send(json.dumps({"failed": error.strerror or str(error)}).encode())
        return
    except prepared.PreparedFailed as error:
        control.send(json.dumps({"unprepared": str(error)}).encode())
        return
    control.send(json.dumps({"ready": supervisor.properties()}).encode())
    supervisor.forget_preparation()
    while (received := _receive(control)) is not None:
        supervisor.serve(*received)


class Supervisor:
    """The state of this process, which runs one program after another."""

    def __init__(
        self, control: socket.socket, settings: Inside, files: memory.KernelFiles, mapped: memory.Mapped
    ):
        self._control = control
        self._scratch = settings.scratch
        self._own_root = settings.own_root
        self._contains = os.getpid() == 1
        self._kill_order = memory.KillOrder(files.score)
        self._memory_kills = memory.MemoryKills(files.kills)
        self._cpus = len(os.sched_getaffinity(0))
        preparation = settings.preparation
        if not preparation.unix_sockets:
            _forget_epoll()
        if not self._contains or not os.access("/dev/shm", os.W_OK):
            _multiprocessing.SemLock = program.ThreadLock
        _warm_up(settings.sites, preparation.preload)
        self._check = (
            import_policy.check(frozenset(preparation.imports)) if preparation.imports is not None else None
        )
        privileges.hide()
        self._calls = seccomp.allow_list(unix_sockets=preparation.unix_sockets)
        if self._contains:
            seccomp.load(self._calls)
            # Made once: no program has to wait for it.
            self._filters = {
                forks: seccomp.of_program(forks=forks, threads=True, alone_as=None) for forks in (False, True)
            }
        self._main: types.ModuleType | None = None
        if preparation.prepared_bytes:
            if not self._contains:
                # Otherwise a process whose parent has ended would be none of its children.
                privileges.adopt_orphans()
                seccomp.load(seccomp.inward())
            self._main = self._prepared(preparation.prepared_bytes, mapped)
        # A second reference: a program that drops the names would otherwise take large objects apart at its
        # end, and so copy them.
        self._kept = {} if self._main is None else dict(vars(self._main))
        # Threads of libraries that the prepared program left count as well.
        self._base_processes = _process_floor() if self._contains else 0
        self._base_bytes = mapped.address_space
        mapped.close()

    def _prepared(self, most_bytes: int, mapped: memory.Mapped) -> types.ModuleType:
        """Run the prepared program, which the host has sent, and return its module. Raises PreparedFailed."""
        received = _record(self._control)
        if received is None:
            sys.exit(0)
        _, (payload,) = received
        self._control.send(json.dumps({"preparing": True}).encode())
        return prepared.prepare(payload, most_bytes, mapped, self._scratch)

    def properties(self) -> dict[str, bool]:
        """Measure the properties of `Isolation` from inside a child that is confined like a program."""
        reader, writer = os.pipe()
        if not self._fork():
            self._confine(forks=False, threads=False)
            found = {
                "host_files_hidden": _hidden("/proc/self/mountinfo")
                and (self._own_root or all(map(_hidden, _OF_THE_HOST))),
                "network_cut": _refused(lambda: socket.socket().close()),
                "processes_contained": self._base_processes > 0 if self._contains else _alone(),
                # Container runtimes' default filters allow this call: a refusal proves the worker's own
                # filter.
                "calls_filtered": _refused(lambda: os.close(os.memfd_create("refused"))),
            }
            os.write(writer, json.dumps(found).encode())
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as answer:
            properties: dict[str, bool] = json.load(answer)
        os.wait()
        return properties

    def forget_preparation(self) -> None:
        """Remove what programs must not find: the guest's modules and the descriptors used so far."""
        with open(os.devnull, "r+b") as null:
            for standard in (0, 1, 2):
                os.dup2(null.fileno(), standard)
        for name in [name for name in sys.modules if name.split(".")[0] == "tirjudge_sandbox"]:
            del sys.modules[name]
        gc.collect()
        # Before the freeze, since the list of objects that `collapse_heap` gets would lack frozen ones.
        memory.collapse_heap()
        # A collection in a program would otherwise write to, and so copy, the pages of all these objects.
        gc.freeze()

    def serve(self, job: Job, descriptors: Sequence[int]) -> None:
        """Run one program to its end, remove everything that it left, and report."""
        started = time.monotonic()
        child = self._fork()
        if not child:
            most, bounded = self._most_processes(job)
            confine = partial(self._confine, forks=self._contains and job.processes > 0, threads=bounded)
            place = program.Place(self._base_bytes, most, confine, self._unlaid, self._check, self._main)
            program.become(job, descriptors, place)
        payload, stdin, stdout, stderr, *fetched = descriptors
        for stream in (stdin, stdout, stderr):
            os.close(stream)
        killed_for = self._watch(child, job, started)
        ending = self._reap(child, killed_for, started)
        if job.fetch:
            _fetch(payload, fetched[0], job)
        for descriptor in (payload, *fetched):
            os.close(descriptor)
        scratch.wipe(self._scratch)
        for device in namespaces.WRITABLE_DEVICES if self._own_root else ():
            # Only a container has devices of its own; elsewhere no program can change the times of a device.
            with contextlib.suppress(OSError):
                os.utime(device)
        # Last, because the next program may arrive as soon as the host has the report.
        self._control.send(ending.pack())

    def _fork(self) -> int:
        supervisor = os.getpid()
        self._kill_order.program_first()
        child = os.fork()
        if child:
            self._kill_order.supervisor_last()
        elif not self._contains:
            # As PID 1, the supervisor takes its children along when it ends; otherwise the kernel must be
            # asked to.
            privileges.end_with(supervisor)
        return child

    def _confine(self, *, forks: bool, threads: bool) -> None:
        """Load the filters of a program. Raises OSError."""
        if self._contains:
            seccomp.load(self._filters[forks])
            return
        if landlock.abi():
            # No limit could bound what is written to a folder of the host.
            landlock.forbid_writing(to=namespaces.WRITABLE_DEVICES)
        seccomp.load(self._calls)
        seccomp.load(seccomp.of_program(forks=forks, threads=threads, alone_as=os.getpid()))

    def _unlaid(self, error: OSError) -> NoReturn:
        """Report to the host, from the process of a program, that its files cannot be written."""
        self._control.send(UNLAID + (error.strerror or str(error)).encode())
        os._exit(1)

    def _most_processes(self, job: Job) -> tuple[int, bool]:
        """Return RLIMIT_NPROC for a program, and True if the kernel enforces it for this uid.

        The limit counts the threads of all processes of this uid. Without a namespace, processes of
        others count too, and their number changes. Programs may then start no process, since nothing would
        clean up a process that a program leaves behind.
        """
        others = self._base_processes if self._contains else _tasks_of_this_uid()
        most = others + (job.processes or job.threads)
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        return (most if hard == resource.RLIM_INFINITY else min(most, hard)), others > 0

    def _watch(self, child: int, job: Job, started: float) -> str | None:
        """Wait for the program's end, a limit or a message of the host; return the reason to kill it."""
        descriptor = os.pidfd_open(child)
        # Processes and threads use their CPU time at the same time, but no more of them than there are CPUs.
        at_once = min(1 + (job.processes or job.threads), self._cpus)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        try:
            while True:
                wall_left = started + job.wall_seconds - time.monotonic()
                cpu_left = (job.cpu_seconds - _cpu_seconds(child)) / at_once
                left = min(wall_left, cpu_left)
                ready = dict(poll.poll(max(0, min(math.ceil(left * 1000), _LONGEST_POLL))))
                if descriptor in ready:
                    return None
                if ready:
                    return self._cancellation(child)
                if left <= 0:
                    return Ending.WALL if wall_left <= cpu_left else Ending.CPU
        finally:
            os.close(descriptor)

    def _cancellation(self, child: int) -> str:
        if not self._control.recv(RECORD_BYTES):
            # The host is gone. The end of PID 1 ends everything in its namespace.
            self._kill(child)
            os._exit(0)
        return Ending.CANCELLED

    def _kill(self, child: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            # -1 means all other processes of the namespace, whatever session or group they have moved to.
            os.kill(-1 if self._contains else child, signal.SIGKILL)

    def _reap(self, child: int, killed_for: str | None, started: float) -> Ending:
        """Kill every process that the program left running, and collect them all."""
        self._kill(child)
        wait_status, cpu, rss = 0, 0.0, 0
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                break
            cpu += usage.ru_utime + usage.ru_stime
            rss = max(rss, usage.ru_maxrss)
            if pid == child:
                wait_status = status
        # The count alone proves little, since the kernel may have killed only a child of the program, and so
        # does the signal alone, which the program may have sent to itself.
        starved = self._memory_kills.rose() and not killed_for
        if starved and os.WIFSIGNALED(wait_status) and os.WTERMSIG(wait_status) == signal.SIGKILL:
            killed_for = Ending.MEMORY
        return Ending(killed_for, wait_status, time.monotonic() - started, cpu, rss * 1024)


def _warm_up(sites: list[str], preload: Sequence[str]) -> None:
    program.default_signals()
    # The interpreter starts without `site`, which would follow .pth files to other folders of the host. These
    # are the parts of it that programs expect.
    sys.path += sites
    site.setquit()
    site.setcopyright()
    site.sethelper()
    for name in preload:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    # numpy loads its generators on first use: do it once here instead of in every program.
    program.seed_generators(0)


def _forget_epoll() -> None:
    """Make Python behave as where there is no epoll, which programs may not call: asyncio then uses poll."""
    selectors.DefaultSelector = selectors.PollSelector  # type: ignore[misc, assignment]
    del selectors.EpollSelector, select.epoll


def _process_floor() -> int:
    """Return the highest RLIMIT_NPROC with which a child cannot fork; 0 if the kernel never refuses."""
    for limit in range(1, _MOST_BASE_PROCESSES):
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
            try:
                grandchild = os.fork()
            except OSError:
                os._exit(1)
            if grandchild:
                os.waitpid(grandchild, 0)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return limit - 1
    raise OSError(f"this uid already runs {_MOST_BASE_PROCESSES} processes in its user namespace")


def _tasks_of_this_uid() -> int:
    """Return how many threads the kernel counts under this uid; 0 if it sets it no limit, as for root."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]

    def refused(limit: int) -> bool:
        resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
        # Makes nothing: the kernel compares the count, and then fails to store a descriptor at address 1.
        return syscalls.fails("clone", _CLONE_INTO_NOWHERE, 0, 1) == errno.EAGAIN

    low, high = 0, 1
    if not refused(low):
        return 0
    while refused(high):
        low, high = high, 2 * high
        if hard != resource.RLIM_INFINITY and high > hard:
            return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if refused(middle) else (low, middle)
    return low


def _cpu_seconds(pid: int) -> float:
    try:
        # The clock id of a process's CPU time, as clock_getcpuclockid(3) computes it.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        # The program has just ended, which poll is about to report.
        return 0.0


def _hidden(path: str) -> bool:
    return _refused(lambda: os.close(os.open(path, os.O_RDONLY)))


def _alone() -> bool:
    """Return True if this process can neither make nor reach another one."""

    def fork() -> None:
        if not os.fork():
            os._exit(0)
        os.wait()

    return _refused(fork) and _refused(lambda: os.kill(os.getppid(), 0))


def _refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError:
        return True
    return False


def _receive(control: socket.socket) -> tuple[Job, list[int]] | None:
    while received := _record(control):
        # Skip a cancellation that arrives after the end of the program that it was for.
        if received[0] != CANCEL:
            return Job.unpack(received[0]), received[1]
    return None


def _record(control: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the next record with its descriptors; None if the host has closed the socket."""
    space = socket.CMSG_SPACE(4 * MOST_DESCRIPTORS)
    record, ancillary, _, _ = control.recvmsg(RECORD_BYTES, space)
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    return (record, list(descriptors)) if record else None


def _fetch(payload: int, out: int, job: Job) -> None:
    """Read files back in a child: the supervisor must learn neither their names nor their content."""
    child = os.fork()
    if not child:
        try:
            scratch.fetch(Payload.read(payload).fetch, out, job.disk_bytes)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
