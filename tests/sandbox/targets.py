"""Targets of the attacks: a sandbox for each placement, and the host state that an attack could change."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pickle
import struct
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tirjudge_sandbox import Execution, Limits, Program, Sandbox
from tirjudge_sandbox.containers.docker import DockerSandbox
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.workers.host import candidate_placements

MIB = 1 << 20
LENGTH = struct.Struct("=I")


class Elsewhere:
    """A local sandbox that runs in a separate process as another user."""

    capacity = 1

    def __init__(self, user: int, placement: str, prepare: Program | None = None):
        """`placement`: one of `host.PLACEMENTS`."""
        self._user = user
        self._placement = placement
        self._prepare = prepare
        self._answers: dict[int, asyncio.Future[Execution]] = {}
        self._numbers = itertools.count()

    async def __aenter__(self) -> Self:
        here = Path(__file__)
        command = [sys.executable, "-m", "tests.sandbox.targets", self._placement]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(here.with_name("unprivileged.py")), str(self._user), *command,
            stdin=pipe, stdout=pipe, cwd=here.parents[2],
        )  # fmt: skip
        self._send(-1, self._prepare)
        assert (await self._received())[1] == "ready"
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stdin.close()
        await self._process.wait()
        await asyncio.wait([self._reading])

    async def run(self, program: Program, limits: Limits) -> Execution:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self._send(number, (program, limits))
        try:
            return await asyncio.shield(self._answers[number])
        except asyncio.CancelledError:
            self._send(number, None)
            await asyncio.wait([self._answers[number]])
            raise

    def _send(self, number: int, what: object) -> None:
        content = pickle.dumps((number, what))
        self._process.stdin.write(LENGTH.pack(len(content)) + content)

    async def _read(self) -> None:
        while answer := await self._received():
            number, execution = answer
            self._answers[number].set_result(execution)

    async def _received(self) -> Any:
        try:
            (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
        except asyncio.IncompleteReadError:
            return None
        return pickle.loads(await self._process.stdout.readexactly(length))


async def serve(placement: str) -> None:
    """Run programs from standard input until it ends; the process that `Elsewhere` starts."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: dict[int, asyncio.Task[Execution]] = {}

    def send(number: int, what: object) -> None:
        content = pickle.dumps((number, what))
        sys.stdout.buffer.write(LENGTH.pack(len(content)) + content)
        sys.stdout.buffer.flush()

    def answer(number: int, task: asyncio.Task[Execution]) -> None:
        del running[number]
        send(number, None if task.cancelled() else task.result())

    async def received() -> Any:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        return pickle.loads(await reader.readexactly(length))

    async with local(placement, (await received())[1]) as box:
        send(-1, "ready")
        while not reader.at_eof():
            try:
                number, what = await received()
            except asyncio.IncompleteReadError:
                break
            if what is not None:
                running[number] = asyncio.ensure_future(box.run(*what))
                running[number].add_done_callback(partial(answer, number))
            elif number in running:
                running[number].cancel()


def local(placement: str, prepare: Program | None = None) -> LocalSandbox:
    """Open a local sandbox with one bare worker in this placement."""
    return LocalSandbox(capacity=1, preload=(), placement=placement, prepare=prepare)


ROOT = 0
ORDINARY = 60_000 + os.getpid() % 5_000
"""A user of this test process alone, since the kernel counts the threads of all processes of a user."""

PLACEMENTS: dict[str, Callable[..., Sandbox]] = {
    name: partial(local, name) for name in candidate_placements()
}
"""Every place that attacks are tried in, each with an optional argument `prepare`."""
if os.geteuid() == ROOT:
    # These need another user, or an interpreter that another user may read.
    PLACEMENTS |= {
        "userns": partial(Elsewhere, ORDINARY, "userns"),
        "own-uid": partial(Elsewhere, ROOT, "own-uid"),
        "plain": partial(Elsewhere, ORDINARY, "plain"),
    }
PLACEMENTS["docker"] = partial(DockerSandbox, capacity=1, preload=())
MARKS = {"docker": (pytest.mark.docker, pytest.mark.slow)}
"""By placement, the marks of its attacks: without slow tests they are tried as an ordinary user."""
if os.geteuid() == ROOT:
    MARKS |= {"root": (pytest.mark.slow,), "own-uid": (pytest.mark.slow,)}

HOARDERS = """
import os, socket, time
def fill():
    held = []
    try:
        while True:
            pair = socket.socketpair()
            held.append(pair)
            pair[0].setblocking(False)
            try:
                while True:
                    pair[0].send(bytes(1 << 16))
            except BlockingIOError:
                pass
    except OSError:
        return held
for number in range(24):
    if os.fork() == 0:
        held = fill()
        time.sleep(60)
held = fill()
time.sleep(60)
"""
"""Twenty-five processes that hold as much of the kernel's memory as fits into their sockets, and wait."""

READ_ONLY = ("own-uid", "plain")
"""Placements in which programs can neither write files nor start processes."""


def descendants(pid: int) -> set[int]:
    """Return the ids of all processes below `pid`, including zombies."""
    children: set[int] = set()
    # The process, or a thread of it, may end while its files are listed and read.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children.update(map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()))
    return children.union(*map(descendants, children))


def calling(source: str) -> str:
    """Return a program with access to the C library, for calls that Python does not expose unchanged."""
    return "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n" + textwrap.dedent(source)


TRYING = """
for name, source in cases.items():
    scope = {}
    try:
        exec(source, scope)
        outcome = repr(scope.get('found'))
    except BaseException as error:
        outcome = f'{type(error).__name__}: {error}'
    print(name, outcome, sep=': ', flush=True)
"""
"""A program that tries the source of each of its binding `cases`, and prints `found` or the exception."""


def outcomes(execution: Execution) -> dict[str, str]:
    """Return the lines `case: outcome` that a program printed. A case that killed it is missing."""
    return dict(line.split(": ", 1) for line in execution.stdout.splitlines())


def last_line(execution: Execution) -> str:
    """Return the line of the exception that ended a program."""
    return execution.stderr.splitlines()[-1]


class Host:
    """This machine, as far as an attack could change it, and bait that an attack may look for."""

    def __init__(self, folder: Path):
        self.secret = folder / "secret"
        self.secret.write_text("the host's secret")
        self.process = subprocess.Popen(["sleep", "600"], env={"TIRJUDGE_BAIT": "the host's secret"})

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def state(self) -> dict[str, object]:
        """Return a state that must be equal before and after an attack."""
        bait = self.secret.stat()
        folders = [Path(path) for path in {*sysconfig.get_paths().values(), "/", "/usr/lib"}]
        return {
            "bait": (self.secret.read_text(), bait.st_mode, bait.st_mtime_ns, self.process.poll()),
            "processes": descendants(os.getpid()),
            "descriptors": os.listdir("/proc/self/fd"),
            "limits": Path("/proc/self/limits").read_text(),
            "priority": (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)),
            "name": os.uname(),
            "system V": [Path("/proc/sysvipc", kind).read_text() for kind in ("shm", "sem", "msg")],
            "shared memory": [name for name in os.listdir("/dev/shm") if "tirjudge" in name],
            "queues": os.listdir("/dev/mqueue") if os.path.isdir("/dev/mqueue") else [],
            "folders": {str(path): path.stat().st_mtime_ns for path in folders if path.exists()},
        }


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
