"""The worker pool: fair sharing, replacement of lost workers, and cleanup."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tirjudge_sandbox import Limits, Program, SandboxUnavailable, Status
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.workers import fair_queue, interpreter, pool, worker
from tirjudge_sandbox.workers.fair_queue import Backoff
from tirjudge_sandbox.workers.host import candidate_placements


def descendants(pid: int) -> set[int]:
    """Return the living processes below `pid`; a busy worker has three: launcher, supervisor, program."""
    children = set()
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path("/proc", other, "stat").read_text().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(parent) == pid and state != "Z":
            children.add(int(other))
    return children | {below for child in children for below in descendants(child)}


EARLIER: set[int] = set()
"""The processes of other tests that go on, such as Ray and the server from which trainings are forked."""


@pytest.fixture(autouse=True)
def earlier():
    EARLIER.clear()
    EARLIER.update(descendants(os.getpid()))


def started() -> set[int]:
    """Return the living processes that the current test has started, directly or not."""
    return descendants(os.getpid()) - EARLIER


async def until(wanted: Callable[[int], bool]) -> set[int]:
    """Wait until the number of living processes that the test has started is as wanted, and return them."""
    while True:
        found = started()
        if wanted(len(found)):
            return found
        await asyncio.sleep(0.02)


def supervisor_of(processes: set[int]) -> int:
    """Return the supervisor: the middle one of a busy worker's three processes."""
    return next(pid for pid in processes if len(descendants(pid)) == 1)


async def test_a_short_program_need_not_wait_for_long_ones(monkeypatch):
    """One more program runs while all of `capacity` are long, but not two, and not afterwards."""
    sleep, quick = (
        Program(source="import time; time.sleep(60)"),
        Program(source="import time; time.sleep(0.05)"),
    )
    async with LocalSandbox(capacity=2, preload=()) as box:
        long = [asyncio.ensure_future(box.run(sleep)) for _ in range(2)]
        for _ in range(3):
            assert (await box.run(quick)).status is Status.OK
        assert (box.stats().running, box.stats().workers) == (2, 3)
        long += [asyncio.ensure_future(box.run(sleep)) for _ in range(2)]
        while box.stats().running < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(2 * pool.LONG_SECONDS)
        assert (box.stats().running, box.stats().queued) == (3, 1)
        for task in long:
            task.cancel()
        await asyncio.wait(long)
        monkeypatch.setattr(pool, "LONG_SECONDS", 60)
        many = [asyncio.ensure_future(box.run(quick)) for _ in range(8)]
        running = set()
        while not all(task.done() for task in many):
            running.add(box.stats().running)
            await asyncio.sleep(0.002)
        assert max(running) == 2
        assert {task.result().status for task in many} == {Status.OK}


async def test_a_worker_is_replaced_after_so_many_programs():
    async with LocalSandbox(capacity=1, preload=(), programs_per_worker=3) as box:
        for _ in range(7):
            assert (await box.run(Program(source="print(1)"))).stdout == "1\n"
        stats = box.stats()
        assert (stats.started, stats.recycled, stats.lost, stats.programs) == (3, 2, 0, 7)
        await until(lambda count: count == 2)


async def test_workers_that_do_not_start_fail_each_program_with_a_growing_wait(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(Backoff, "wait", lambda pause: asyncio.sleep(0, waits.append(pause.failures)))
    monkeypatch.setattr(fair_queue, "_FIRST_SECONDS", 0)
    async with LocalSandbox(capacity=1, preload=()) as box:
        os.kill(next(pid for pid in started() if not descendants(pid)), signal.SIGKILL)
        await until(lambda count: count == 0)
        with monkeypatch.context() as broken:
            broken.setattr(interpreter.sys, "executable", "/nowhere")
            ran = await asyncio.gather(*(box.run(Program(source="")) for _ in range(4)))
        assert {execution.status for execution in ran} == {Status.SANDBOX_FAILED}
        assert "/nowhere" in ran[0].detail
        stats = box.stats()
        assert (stats.refused, stats.lost, stats.failing, stats.workers) == (4, 1, 5, 0)
        assert waits == [1, 2, 3, 4]
        assert (await box.run(Program(source="print(1)"))).stdout == "1\n"
        assert (box.stats().failing, box.stats().started) == (0, 2)


async def test_a_waiting_program_can_be_cancelled():
    async with LocalSandbox(capacity=1, preload=()) as box:
        first = asyncio.ensure_future(box.run(Program(source="import time; time.sleep(0.5)")))
        second = asyncio.ensure_future(box.run(Program(source="")))
        await asyncio.sleep(0.1)
        second.cancel()
        third = await box.run(Program(source="print(3)"))
        assert ((await first).status, second.cancelled(), third.stdout) == (Status.OK, True, "3\n")


async def test_a_worker_killed_while_idle_costs_nothing():
    async with LocalSandbox(capacity=1, preload=()) as box:
        supervisor = next(pid for pid in started() if not descendants(pid))
        os.kill(supervisor, signal.SIGKILL)
        await until(lambda count: count == 0)
        assert (await box.run(Program(source="print(1)"))).stdout == "1\n"


async def test_a_wedged_worker_is_killed_and_replaced(monkeypatch):
    monkeypatch.setattr(worker, "_GRACE_SECONDS", 0.3)
    async with LocalSandbox(capacity=1, preload=()) as box:
        stuck = asyncio.ensure_future(
            box.run(Program(source="import time; time.sleep(60)"), Limits(wall_seconds=0.5))
        )
        os.kill(supervisor_of(await until(lambda count: count > 2)), signal.SIGSTOP)
        execution = await stuck
        assert (execution.status, "did not answer" in execution.detail) == (Status.SANDBOX_FAILED, True)
        assert (await box.run(Program(source="print(1)"))).stdout == "1\n"


async def test_closing_the_sandbox_ends_running_programs():
    async with LocalSandbox(capacity=1, preload=()) as box:
        running = asyncio.ensure_future(box.run(Program(source="import time; time.sleep(60)")))
        await until(lambda count: count > 2)
    assert started() == set()
    assert (await running).status is Status.SANDBOX_FAILED


def test_it_can_be_opened_again_in_another_loop(monkeypatch):
    """Although it was closed while it warmed the worker for a short program."""
    monkeypatch.setattr(pool, "LONG_SECONDS", 0.01)
    box = LocalSandbox(capacity=1, preload=())

    async def interrupted() -> None:
        async with box:
            sleep = Program(source="import time; time.sleep(60)")
            tasks = [asyncio.ensure_future(box.run(sleep)) for _ in range(2)]
            while not any(seat.warming for seat in box._pool._seats):  # noqa: ASYNC110
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def again() -> list[Status]:
        async with box:
            quick = Program(source="import time; time.sleep(0.2)")
            return [ran.status for ran in await asyncio.gather(*(box.run(quick) for _ in range(4)))]

    asyncio.run(interrupted())
    assert asyncio.run(again()) == [Status.OK] * 4


async def test_no_descriptor_is_kept():
    async with LocalSandbox(capacity=1, preload=()) as box:
        before = os.listdir("/proc/self/fd")
        for source in ("print(1)", "1/0", "while True: print(1)", "import time; time.sleep(9)"):
            await box.run(Program(source=source, fetch=("x",)), Limits(wall_seconds=0.3, output_bytes=1000))
        assert os.listdir("/proc/self/fd") == before


class Watches(selectors.DefaultSelector):
    """The selector of a loop; while `full` is set, its user has used up the kernel's limit of watches."""

    full = False

    def register(self, *arguments):
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().register(*arguments)


async def test_a_start_that_is_cancelled_twice_leaves_nothing():
    # The second cancellation, such as one by a time limit, comes while the first one ends the processes.
    before = len(os.listdir("/proc/self/fd"))
    slow = Program(source="import time; time.sleep(60)")
    for step in range(3):
        async with LocalSandbox(capacity=2, preload=()) as sandbox:
            busy = asyncio.ensure_future(sandbox.run(slow))
            starting = asyncio.ensure_future(sandbox.run(slow))
            await asyncio.sleep(0.03)
            starting.cancel()
            for _ in range(step):
                await asyncio.sleep(0)
            starting.cancel()
            busy.cancel()
            await asyncio.wait([starting, busy])
    await asyncio.sleep(0.5)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_watches_runs_fail_and_the_sandbox_does_not():
    watches = Watches()

    async def run(full: bool, box: LocalSandbox) -> Status:
        watches.full = full
        return (await box.run(Program(source="print(1)"))).status

    async def statuses() -> list[Status]:
        async with LocalSandbox(capacity=1, preload=()) as box:
            found = [await run(full, box) for full in (True, True, False)]
            watches.full = True
        with pytest.raises(SandboxUnavailable, match="No space left on device"):
            await LocalSandbox(capacity=1, preload=()).__aenter__()
        return found

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(watches)) as runner:
        assert runner.run(statuses()) == [Status.SANDBOX_FAILED, Status.SANDBOX_FAILED, Status.OK]
    assert started() == set()


@pytest.mark.slow
async def test_without_descriptors_runs_fail_and_lose_none():
    """Each number of free descriptors fails another step."""
    program = Program(source="print(1)", fetch=("x",))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with LocalSandbox(capacity=1, preload=()) as box:
        await box.run(program)
        before, statuses = len(os.listdir("/proc/self/fd")), []
        for free in range(12):
            held = []
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
            with suppress(OSError):
                while True:
                    held.append(os.dup(0))
            for descriptor in held[:free]:
                os.close(descriptor)
            statuses.append((await box.run(program)).status)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for descriptor in held[free:]:
                os.close(descriptor)
            assert (await box.run(program)).status is Status.OK
            assert len(os.listdir("/proc/self/fd")) == before
        assert set(statuses[:4]) == {Status.SANDBOX_FAILED}
        assert set(statuses[-2:]) == {Status.OK}


WITH_FILES = """
import asyncio
from tirjudge_sandbox import Program
from tirjudge_sandbox.local import LocalSandbox

async def main():
    async with LocalSandbox(capacity=1, preload=(), placement="plain") as box:
        await box.run(Program(source="import time; time.sleep(60)", files={"given": b"a caller's"}))

asyncio.run(main())
"""


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


@pytest.mark.slow
@pytest.mark.parametrize("with_its_workers", [False, True])
def test_a_killed_host_leaves_no_folder(with_its_workers, tmp_path):
    """The launcher removes it; if that was killed too, the next sandbox does, and leaves those in use."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    def start():
        before = set(tmp_path.iterdir())
        host = subprocess.Popen([sys.executable, "-c", WITH_FILES], env=environment)
        wait_for(lambda: any(list(path.glob("**/given")) for path in set(tmp_path.iterdir()) - before))
        return host

    host = start()
    below = descendants(host.pid)
    host.kill()
    if with_its_workers:
        for pid in below:
            with suppress(ProcessLookupError):  # it ended with the one above it
                os.kill(pid, signal.SIGKILL)
    host.wait()
    if with_its_workers:
        time.sleep(0.1)
        assert len(list(tmp_path.iterdir())) == 1
        hosts = [start(), start()]
        assert len(list(tmp_path.iterdir())) == 2
        for host in hosts:
            host.kill()
            host.wait()
    wait_for(lambda: not list(tmp_path.iterdir()))


IN_A_TERMINAL = """
import asyncio, os, signal, sys
from tirjudge_sandbox import Program
from tirjudge_sandbox.local import LocalSandbox

async def main():
    signal.signal(signal.SIGINT, lambda *_: None)
    async with LocalSandbox(capacity=1, preload=(), placement=sys.argv[1]) as box:
        source = "import time; print('began', flush=True); time.sleep(0.5); print('ended')"
        running = asyncio.ensure_future(box.run(Program(source=source)))
        await asyncio.sleep(0.3)
        os.killpg(0, signal.SIGINT)
        print((await running).stdout)

asyncio.run(main())
"""


@pytest.mark.parametrize("placement", [candidate_placements()[0], "plain"])
def test_ctrl_c_reaches_the_host_alone(placement):
    """A terminal signals the whole group of the host, which may want to let its programs end."""
    command = [sys.executable, "-c", IN_A_TERMINAL, placement]
    ran = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=True)
    assert ran.stdout.split() == ["began", "ended"]
