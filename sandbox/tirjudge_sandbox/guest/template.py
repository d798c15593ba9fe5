"""The template: a warm interpreter, PID 1 of its namespaces, that forks once for every program.

It reads no source, no bindings, no stdin and no output: whatever it decoded and freed, a later program would find in
the heap that it inherits.
"""

from __future__ import annotations

import array
import gc
import importlib.util
import json
import math
import os
import resource
import select
import signal
import site
import socket
import sys
import time

from tirjudge_sandbox.guest import libc, namespaces, privileges, program, scratch, seccomp
from tirjudge_sandbox.guest.wire import CANCEL, RECORD_BYTES, Ending, Job, Payload

_PAGE = resource.getpagesize()
_MOST_BASE_PROCESSES = 64


def main() -> None:
    """Prepare, say how it went, and serve until the host closes the control socket."""
    settings = json.loads(sys.argv[1])
    control = socket.socket(fileno=settings["control"])
    try:
        base_processes = _process_floor()
        _warm_up(settings["sites"], settings["preload"])
        base_bytes = _address_space(settings["statm"])
        privileges.hide()
        seccomp.install()
    except OSError as error:
        control.send(json.dumps({"failed": str(error)}).encode())
        return
    control.send(json.dumps({"ready": _properties(base_processes)}).encode())
    with open(os.devnull, "r+b") as null:
        for standard in (0, 1, 2):
            os.dup2(null.fileno(), standard)
    _forget_ourselves()
    while (job := _receive(control)) is not None:
        _serve(control, *job, base_bytes, base_processes)


def _warm_up(sites: list[str], preload: list[str]) -> None:
    # A program's own signal to PID 1 is dropped by the kernel only while there is no handler.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.path += sites
    site.setquit()
    site.setcopyright()
    site.sethelper()
    for name in preload:
        if importlib.util.find_spec(name):
            importlib.import_module(name)
    # numpy loads its generators on first use, which would else be every program's.
    program.seed_generators(0)


def _process_floor() -> int:
    """The RLIMIT_NPROC under which a child of ours can just not fork; 0 where the kernel never refuses."""
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


def _address_space(statm: int) -> int:
    """Bytes of address space that this process maps."""
    pages = int(os.pread(statm, 64, 0).split()[0])
    os.close(statm)
    return pages * _PAGE


def _properties(base_processes: int) -> dict[str, bool]:
    """What holds here, tried from where a program will stand."""
    return {
        "host_files_hidden": not os.path.exists("/proc") and not os.path.exists("/root"),
        "network_cut": _refused(lambda: socket.socket().close()),
        "processes_contained": os.getpid() == 1 and base_processes > 0,
        "calls_filtered": _refused(lambda: libc.call("unshare", namespaces.NEW_USER)),
    }


def _forget_ourselves() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tirjudge_sandbox"]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


def _refused(action: object) -> bool:
    try:
        action()  # type: ignore[operator]
    except OSError:
        return True
    return False


def _receive(control: socket.socket) -> tuple[Job, list[int]] | None:
    while True:
        record, ancillary, _, _ = control.recvmsg(RECORD_BYTES, socket.CMSG_SPACE(4 * Job.MOST_DESCRIPTORS))
        if not record:
            return None
        # A cancellation that crossed with the report of the program it meant.
        if record != CANCEL:
            break
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    return Job.unpack(record), list(descriptors)


def _serve(control: socket.socket, job: Job, descriptors: list[int], base_bytes: int, base_processes: int) -> None:
    started = time.monotonic()
    child = os.fork()
    if not child:
        program.become(job, descriptors, base_bytes=base_bytes, base_processes=base_processes)
    payload, stdin, stdout, stderr, *fetched = descriptors
    for stream in (stdin, stdout, stderr):
        os.close(stream)
    killed_for = _watch(control, child, job, started)
    ending = _reap(child, killed_for, started)
    if job.fetch:
        _fetch(payload, fetched[0], job)
    for descriptor in (payload, *fetched):
        os.close(descriptor)
    scratch.wipe(scratch.PATH)
    control.send(ending.pack())


def _watch(control: socket.socket, child: int, job: Job, started: float) -> str | None:
    """Wait for the program's end, a limit, or the host's word; say which of ours it was."""
    descriptor = os.pidfd_open(child)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(control, select.POLLIN)
    cpu_clock = (~child << 3) | 2
    try:
        while True:
            wall_left = started + job.wall_seconds - time.monotonic()
            cpu_left = (job.cpu_seconds - _clock(cpu_clock)) / (1 + job.processes)
            left = min(wall_left, cpu_left)
            ready = dict(poll.poll(max(0, math.ceil(left * 1000))))
            if descriptor in ready:
                return None
            if ready:
                return _host_word(control)
            if left <= 0:
                return Ending.WALL if wall_left <= cpu_left else Ending.CPU
    finally:
        os.close(descriptor)


def _clock(clock: int) -> float:
    try:
        return time.clock_gettime(clock)
    except OSError:
        # It ended a moment ago, and poll is about to say so.
        return 0.0


def _host_word(control: socket.socket) -> str:
    if not control.recv(RECORD_BYTES):
        # The host is gone. As PID 1, we take everything in this namespace along.
        os._exit(0)
    return Ending.CANCELLED


def _reap(child: int, killed_for: str | None, started: float) -> Ending:
    """Kill whatever the program left running, and collect it all."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
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
    return Ending(killed_for, wait_status, time.monotonic() - started, cpu, rss * 1024)


def _fetch(payload: int, out: int, job: Job) -> None:
    """Read files back in a child, since the template must know neither the names nor the content."""
    child = os.fork()
    if not child:
        try:
            scratch.fetch(Payload.read(payload).fetch, out, job.disk_bytes)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
