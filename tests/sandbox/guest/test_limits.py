"""The limits of CPU time, wall time, memory, processes, disk and output are enforced, exactly.

Programs that resist a limit are in `test_escape_*.py`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tirjudge_sandbox import Status
from tirjudge_sandbox.workers.worker import Capture

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20


@pytest.mark.parametrize("name", ["memory_bytes", "threads", "processes", "output_bytes", "disk_bytes"])
async def test_a_limit_that_must_be_whole_is_no_fraction(run, name):
    with pytest.raises(ValueError, match=rf"Limits.{name} must be a whole number, not 1000000.0"):
        await run("print(1)", **{name: 1e6})


async def test_cpu_time(run):
    execution = await run("while True: pass", cpu_seconds=0.3)
    assert execution.status is Status.CPU_LIMIT
    assert 0.3 <= execution.cpu_seconds < 1


async def test_memory(run):
    execution = await run("x = bytearray(256 << 20)", memory_bytes=128 * MIB)
    assert (execution.status, execution.exit_code) == (Status.ERROR, 1)
    assert execution.stderr.splitlines()[-1] == "MemoryError"


COUNT_THREADS = """
import threading, time
started = 0
try:
    while started < 1000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        started += 1
except RuntimeError as error:
    print(started, error)
"""


@pytest.mark.parametrize(("limits", "most"), [({}, 32), ({"threads": 5}, 5), ({"threads": 0}, 0)])
async def test_as_many_threads_as_allowed(run, limits, most):
    execution = await run(COUNT_THREADS, **limits)
    assert (execution.status, execution.stdout) == (Status.OK, f"{most} can't start new thread\n")


async def test_the_stacks_of_threads_count_as_memory(run):
    source = "import threading; threading.stack_size(16 << 20)" + COUNT_THREADS
    started = int((await run(source, memory_bytes=64 * MIB)).stdout.split()[0])
    assert 1 <= started <= 3


async def test_a_thread_reserves_no_heap_of_its_own(run):
    """A heap of the C library for each of eight threads would take 512 MiB of addresses."""
    source = """
from concurrent.futures import ThreadPoolExecutor
import time
with ThreadPoolExecutor(8) as pool:
    sizes = list(pool.map(lambda n: (bytearray(100_000), time.sleep(0.02), n)[2], range(8)))
print(len(sizes), len(bytearray(100 << 20)))
"""
    assert (await run(source, memory_bytes=256 * MIB)).stdout == f"8 {100 << 20}\n"


async def test_cpu_time_of_threads_counts_together(run):
    source = """
import hashlib, threading
def spin():
    while True: hashlib.sha256(bytes(1 << 20))
for _ in range(4): threading.Thread(target=spin).start()
"""
    execution = await run(source, cpu_seconds=0.4)
    assert execution.status is Status.CPU_LIMIT
    assert 0.4 <= execution.cpu_seconds < 1


async def test_as_many_processes_as_allowed(run):
    source = """
import os, time
started = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        started += 1
except BlockingIOError:
    print(started)
"""
    assert (await run(source, processes=3)).stdout == "3\n"


async def test_output_of_both_streams_counts_together(run):
    source = "import sys\nfor _ in range(10): print('x' * 99); print('y' * 99, file=sys.stderr)"
    execution = await run(source, output_bytes=1500)
    assert execution.status is Status.OUTPUT_LIMIT
    assert len(execution.stdout) + len(execution.stderr) == execution.kept_bytes == 1500
    # Ten lines of a hundred bytes on both streams, unless it was killed before it could write the last ones.
    assert 0 < execution.cut_bytes <= 500


BEGUN = "import sys\nprint('a line')\nprint('half', end='')\nprint('err', end='', file=sys.stderr)\n"
ENDS = {
    "sleeps": ("import time; time.sleep(60)", Status.WALL_LIMIT),
    "spins": ("while True: pass", Status.CPU_LIMIT),
    "keeps the interpreter": ("10**10**9", Status.CPU_LIMIT),
    "ignores signals": (
        "import signal\nfor n in {*signal.valid_signals()} - {9, 19}: signal.signal(n, signal.SIG_IGN)\n"
        "while True: pass",
        Status.CPU_LIMIT,
    ),
    "aborts": ("import os; os.abort()", Status.SIGNAL),
    "crashes": ("import ctypes; ctypes.string_at(0)", Status.SIGNAL),
    "overflows the stack": (
        "sys.setrecursionlimit(10**9)\n"
        "class A:\n    def __getattr__(self, name): return getattr(self, name)\nA().x",
        Status.SIGNAL,
    ),
    "exits at once": ("import os; os._exit(3)", Status.ERROR),
}


@pytest.mark.parametrize("end", ENDS)
async def test_what_was_printed_before_the_end_is_kept(run, end):
    source, status = ENDS[end]
    if end == "overflows the stack" and sys.version_info >= (3, 12):
        status = Status.ERROR  # a RecursionError
    execution = await run(BEGUN + source, cpu_seconds=0.5, wall_seconds=3 if end == "sleeps" else 20)
    assert (execution.status, execution.stdout) == (status, "a line\nhalf"), execution
    assert execution.stderr.startswith("err")


DEEP = "import sys\nsys.setrecursionlimit(300_000)\ndef f(): f()\nf()\n"


@pytest.fixture(scope="module")
def shown_by_cpython() -> list[str]:
    command = [sys.executable, "-c", DEEP]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False).stderr.splitlines()


@pytest.mark.slow
async def test_an_endless_recursion_ends_with_the_frames_that_cpython_prints(run, shown_by_cpython):
    execution = await run(DEEP, cpu_seconds=20)
    assert execution.status is Status.ERROR
    repeated = "  [Previous line repeated 997 more times]"
    assert repeated in shown_by_cpython
    assert execution.stderr.splitlines()[-2:] == [repeated, shown_by_cpython[-1]]


async def test_single_lines_wake_the_host_rarely(run, monkeypatch):
    """Text and end of a line are written one by one, and would otherwise be 200,000 reads."""
    reads = []
    read = Capture._read
    monkeypatch.setattr(Capture, "_read", lambda *given: (reads.append(1), read(*given))[1])
    execution = await run("for n in range(100_000): print(n)")
    assert execution.stdout.split() == [*map(str, range(100_000))]
    assert len(reads) < 20_000


async def test_output_exactly_at_the_cap_is_not_truncated(run):
    execution = await run("print('x' * 999)", output_bytes=1000)
    assert (execution.status, execution.truncated, len(execution.stdout)) == (Status.OK, False, 1000)
    assert (execution.kept_bytes, execution.cut_bytes) == (1000, 0)


@pytest.mark.parametrize(
    ("source", "errno"),
    [
        ("open('x', 'wb').write(bytes(2 << 20))", 27),
        ("for n in range(100): open(str(n), 'wb').write(bytes(100_000))", 28),
    ],
    ids=["one file", "many files"],
)
async def test_disk(run, source, errno):
    execution = await run(source, disk_bytes=MIB)
    assert execution.stderr.splitlines()[-1].startswith(f"OSError: [Errno {errno}]")


async def test_the_measured_times_and_memory_are_plausible(run):
    execution = await run("x = bytearray(50 << 20)\nfor n in range(2_000_000): pass")
    assert execution.max_rss_bytes > 50 * MIB
    assert 0 < execution.cpu_seconds <= execution.wall_seconds + 0.05


DEEPEST = "d/" * 64 + "f"


async def test_files_lie_in_at_most_64_folders(run):
    """Each folder is opened again for each file, after the program's end and outside of its limits."""
    for field in ({"fetch": (f"d/{DEEPEST}",)}, {"files": {f"d/{DEEPEST}": b""}}):
        with pytest.raises(ValueError, match="lies in 65 folders, at most 64 are possible"):
            await run("", **field)
    with pytest.raises(ValueError, match="5000 files cannot be fetched"):
        await run("", fetch=tuple(map(str, range(5000))))
    ran = await run("", files={DEEPEST: b"deep"}, fetch=(DEEPEST,))
    assert (ran.status, dict(ran.files)) == (Status.OK, {DEEPEST: b"deep"})
