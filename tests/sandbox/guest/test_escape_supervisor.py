"""Attacks on the supervising processes: killed workers, vanished clients, hosts with many descriptors."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.targets import MARKS, PLACEMENTS, descendants
from tirjudge_sandbox import Limits, Program, Sandbox, Status

REPOSITORY = Path(__file__).parents[3]
LOCAL = [name for name in PLACEMENTS if name != "docker"]
SLEEP = Program(source="import time; print('began', flush=True); time.sleep(60)")
QUICK = Program(source="print('on')")

local = pytest.mark.parametrize("place", [pytest.param(name, marks=MARKS.get(name, ())) for name in LOCAL])


BEFORE: set[int] = set()
"""Workers that earlier tests of this process left running, such as those of a judge that tests share."""


@pytest.fixture(autouse=True)
def workers_before() -> Iterator[None]:
    BEFORE.update(workers())
    yield
    BEFORE.clear()


def workers(host: int | None = None) -> set[int]:
    """Return the ids of all launchers, supervisors and programs below a host process (default: this one).

    Those that ran before the test are left out.
    """
    below = descendants(host or os.getpid()) - BEFORE
    return {pid for pid in below if b"tirjudge_sandbox.guest" in of_process(pid, "cmdline")}


def of_process(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def child(pid: int | None) -> int | None:
    return next(map(int, of_process(pid, f"task/{pid}/children").split()), None)


def launcher(processes: set[int]) -> int | None:
    return next((pid for pid in processes if b"guest.launcher" in of_process(pid, "cmdline")), None)


def supervisor(processes: set[int]) -> int | None:
    """Return the supervisor: the launcher's child. A program looks alike and is the supervisor's child."""
    return child(launcher(processes))


def program(processes: set[int]) -> int | None:
    return child(supervisor(processes))


async def busy(host: int | None = None) -> set[int]:
    """Return all processes of a worker once a program runs in it and is among them."""
    async with asyncio.timeout(30):
        while program(found := workers(host)) not in found:  # noqa: ASYNC110 - other processes set no events
            await asyncio.sleep(0.01)
    return found


async def at_rest() -> set[int]:
    """Return all processes of a worker once the last program is gone, which has reported before."""
    async with asyncio.timeout(30):
        while program(workers()):  # noqa: ASYNC110 - other processes set no events
            await asyncio.sleep(0.01)
    return workers()


async def begun(box: Sandbox) -> tuple[asyncio.Future, set[int]]:
    """Start a program, wait until it runs, and return it with all processes of its worker."""
    running = asyncio.ensure_future(box.run(SLEEP, Limits(wall_seconds=90)))
    return running, await busy()


@pytest.mark.slow
@local
@pytest.mark.parametrize("of", [launcher, supervisor])
async def test_a_killed_worker_costs_its_program_alone(place, of):
    async with PLACEMENTS[place]() as box:
        running, processes = await begun(box)
        os.kill(of(processes), signal.SIGKILL)
        assert (await running).status is Status.SANDBOX_FAILED
        assert (await box.run(QUICK, Limits())).stdout == "on\n"
        assert not workers() & processes
    assert workers() == set()


@local
async def test_a_killed_program_costs_no_worker(place):
    async with PLACEMENTS[place]() as box:
        await box.run(QUICK, Limits())
        idle = await at_rest()
        running, processes = await begun(box)
        assert processes - idle == {program(processes)}
        os.kill(program(processes), signal.SIGKILL)
        execution = await running
        assert (execution.status, execution.signal) == (Status.SIGNAL, signal.SIGKILL)
        assert (await box.run(QUICK, Limits())).stdout == "on\n"
        assert await at_rest() == idle


@local
async def test_a_cancelled_program_is_gone_and_its_worker_is_not(place):
    async with PLACEMENTS[place]() as box:
        await box.run(QUICK, Limits())
        idle = await at_rest()
        running, _ = await begun(box)
        running.cancel()
        await asyncio.wait([running])
        assert (running.cancelled(), workers()) == (True, idle)
        assert (await box.run(QUICK, Limits())).stdout == "on\n"


@local
async def test_cancelling_at_any_moment(place):
    flood = Program(source="import os\nwhile True: os.write(1, bytes(9999))")
    async with PLACEMENTS[place]() as box:
        await box.run(QUICK, Limits())
        idle = await at_rest()
        for milliseconds in range(0, 20, 3):
            for program in (QUICK, flood):
                running = asyncio.ensure_future(box.run(program, Limits(output_bytes=100_000)))
                await asyncio.sleep(milliseconds / 1000)
                running.cancel()
                await asyncio.wait([running])
                assert (await box.run(QUICK, Limits())).stdout == "on\n"
        assert await at_rest() == idle


CLIENT = """
import asyncio
from tests.sandbox.targets import PLACEMENTS
from tirjudge_sandbox import Limits, Program

async def main():
    async with PLACEMENTS[{!r}]() as box:
        await box.run(Program(source="import time; time.sleep(60)"), Limits(wall_seconds=90))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("place", "number"),
    [
        *(pytest.param(name, signal.SIGKILL, marks=MARKS.get(name, ())) for name in LOCAL),
        (LOCAL[0], signal.SIGTERM),
        (LOCAL[0], signal.SIGINT),
    ],
)
async def test_nothing_outlives_a_client(place, number):
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT.format(place), cwd=REPOSITORY, stderr=subprocess.DEVNULL
    )
    left = await busy(client.pid)
    client.send_signal(number)
    await client.wait()
    async with asyncio.timeout(30):
        while any(of_process(pid, "stat") for pid in left):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


HOLDS = """
import fcntl, os, socket
held = []
for descriptor in range(3, 4096):
    try:
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
        held.append(descriptor)
    except OSError:
        pass
print(held)
"""


async def test_a_host_with_more_descriptors_than_a_program_may_have():
    """Regression: a control socket with a high number escaped the closing of descriptors in the program."""
    reader, writer = os.pipe()
    high = [os.dup(reader) for _ in range(400)]
    try:
        async with PLACEMENTS[LOCAL[0]]() as box:
            assert (await box.run(Program(source=HOLDS), Limits())).stdout == "[]\n"
    finally:
        for descriptor in (reader, writer, *high):
            os.close(descriptor)


LIMITED = """
import os, resource
from tirjudge_sandbox import Limits
from tirjudge_sandbox.guest import program
from tirjudge_sandbox.guest.wire import Job, Payload

set_limit = resource.setrlimit

def with_a_limit_on_descriptors(kind, limits):
    set_limit(kind, limits)
    set_limit(resource.RLIMIT_NOFILE, (32, 32))

resource.setrlimit = with_a_limit_on_descriptors
payload = Payload.seal(b"import os; print(os.listdir('/proc/self/fd'))", "{}", {}, (), 0)
os.dup2(payload, 100)
place = program.Place(1 << 40, 1 << 20, lambda: None, lambda error: os._exit(3), None, None)
program.become(Job.of(Limits(), fetch=False), (payload, 0, 1, 2), place)
"""


async def test_a_limit_on_descriptors_leaves_none_open_above_it(tmp_path):
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LIMITED, cwd=tmp_path, stdout=subprocess.PIPE
    )
    # 3 is the folder that is listed.
    assert (await ran.communicate())[0] == b"['0', '1', '2', '3']\n"


CLOSED = """
import asyncio, os
os.closerange(0, 3)
from tests.sandbox.targets import PLACEMENTS
from tirjudge_sandbox import Limits, Program

async def main():
    async with PLACEMENTS[{!r}]() as box:
        ran = await box.run(Program(source="print(input())", stdin="given"), Limits())
    os._exit(ran.stdout != "given\\n")

asyncio.run(main())
"""


async def test_a_host_that_was_started_with_closed_streams():
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", CLOSED.format(LOCAL[0]), cwd=REPOSITORY)
    assert await host.wait() == 0
