"""Many programs of every kind in one sandbox: each must end as expected, and nothing may grow.

    python -m benchmarks.sandbox_soak [--programs 50000] [--seed 0] [--seconds 1500]

The programs succeed, fail, run into each limit or are cancelled, while workers are killed. The exit code is 1
if a program ended differently than expected, or if memory, descriptors or processes grew. With `--seconds`,
no batch starts after that time, and the programs that have run are reported.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tirjudge_sandbox import Execution, Limits, Program, Status
from tirjudge_sandbox.local import LocalSandbox

CLIENTS = 4
BATCHES = 25
PROGRAMS_PER_KILL = 500
MIB = 1 << 20
MOST_GROWTH = 4 * MIB
"""Growth in bytes that is allowed for the host process, from the second fifth of a soak to its end."""


@dataclass(frozen=True)
class Trial:
    """A program with its limits, and the check that its execution must pass."""

    kind: str
    program: Program
    passes: Callable[[Execution], bool]
    limits: Limits = Limits()


# Each maker turns a random number into a trial, so that no two programs of a kind are the same.


def right(number: int) -> Trial:
    """A program that prints a sum."""
    source = f"print(sum(n * n for n in range({number % 1000})))"
    expected = f"{sum(n * n for n in range(number % 1000))}\n"
    passes = lambda ran: (ran.status, ran.stdout) == (Status.OK, expected)  # noqa: E731
    return Trial("right", Program(source=source), passes)


def given(number: int) -> Trial:
    """A program that copies its binding, its standard input and a file to a fetched file."""
    text = f"{number:x}" * (number % 500 + 1)
    program = Program(
        source="open('out', 'w').write(bound + input() + open('in').read())",
        bindings={"bound": text}, stdin=text, files={"in": text.encode()}, fetch=("out",),
    )  # fmt: skip
    return Trial("given", program, lambda ran: ran.files == {"out": text.encode() * 3})


def wrong(number: int) -> Trial:
    """A program that raises an exception."""
    program = Program(source=f"raise ValueError({number})")
    return Trial("wrong", program, lambda ran: ran.stderr.endswith(f"ValueError: {number}\n"))


def exits(number: int) -> Trial:
    """A program that exits with a code."""
    program = Program(source=f"import sys; sys.exit({number % 256})")
    return Trial("exit", program, lambda ran: ran.exit_code == number % 256)


def dies(number: int) -> Trial:
    """A program that is ended by a signal."""
    deadly = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT)[number % 4]
    program = Program(source=f"import os; os.kill(os.getpid(), {int(deadly)})")
    return Trial("signal", program, lambda ran: (ran.status, ran.signal) == (Status.SIGNAL, deadly))


def starves(number: int) -> Trial:
    """A program that needs more memory than it may use."""
    program = Program(source="kept = bytearray(1 << 30)")
    limits = Limits(memory_bytes=64 * MIB)
    return Trial("memory", program, lambda ran: ran.stderr.endswith("MemoryError\n"), limits)


def fills(number: int) -> Trial:
    """A program that fills its disk."""
    program = Program(source="for n in range(99): open(str(n), 'wb').write(bytes(1 << 20))")
    return Trial("disk", program, lambda ran: "[Errno 28]" in ran.stderr)


def floods(number: int) -> Trial:
    """A program that prints more than it may."""
    program = Program(source="while True: print('x' * 999)")
    limits = Limits(output_bytes=10_000)
    passes = lambda ran: (ran.status, len(ran.stdout)) == (Status.OUTPUT_LIMIT, 10_000)  # noqa: E731
    return Trial("output", program, passes, limits)


def sleeps(number: int) -> Trial:
    """A program that exceeds its wall time."""
    program = Program(source="import time; time.sleep(60)")
    limits = Limits(wall_seconds=0.05)
    return Trial("wall time", program, lambda ran: ran.status is Status.WALL_LIMIT, limits)


def spins(number: int) -> Trial:
    """A program that exceeds its CPU time."""
    program = Program(source="while True: pass")
    limits = Limits(cpu_seconds=0.05, wall_seconds=60)
    return Trial("CPU time", program, lambda ran: ran.status is Status.CPU_LIMIT, limits)


DAEMON = """
import os, time
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
print('left')
"""


def leaves(number: int) -> Trial:
    """A program that leaves daemons behind, which must not survive it."""
    limits = Limits(processes=3)
    passes = lambda ran: (ran.status, ran.stdout) == (Status.OK, "left\n")  # noqa: E731
    return Trial("daemons", Program(source=DAEMON), passes, limits)


THREADS = """
import threading, time
threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for n in range(40)]
try:
    for thread in threads: thread.start()
except RuntimeError:
    print(threading.active_count() - 1)
"""


def threads(number: int) -> Trial:
    """A program that starts as many threads as it may, and leaves them running."""
    most = number % Limits().threads
    passes = lambda ran: (ran.status, ran.stdout) == (Status.OK, f"{most}\n")  # noqa: E731
    return Trial("threads", Program(source=THREADS), passes, Limits(threads=most))


OFTEN = (
    (right, 60),
    (given, 12),
    (wrong, 10),
    (exits, 5),
    (dies, 5),
    (starves, 2),
    (leaves, 1.5),
    (threads, 2),
)
SELDOM = ((fills, 1), (floods, 1.5), (sleeps, 1), (spins, 1))


class Soak:
    """Runs trials in a sandbox and counts executions, killed workers and anomalies."""

    def __init__(self, box: LocalSandbox, seed: int):
        self.tried: Counter[str] = Counter()
        self.kills = 0
        self.lost = 0
        self.anomalies: list[str] = []
        self._box = box
        self._random = random.Random(seed)

    async def batch(self, programs: int) -> None:
        """Run a number of programs from several clients, and kill workers while they run."""
        makers, weights = zip(*OFTEN, *SELDOM, strict=True)
        chosen = self._random.choices(makers, weights, k=programs)
        trials = [make(self._random.randrange(1 << 30)) for make in chosen]
        kills = set(range(programs // 2, 0, -PROGRAMS_PER_KILL // 2))
        await asyncio.gather(*(self._client(trials, kills) for _ in range(CLIENTS)))

    async def _client(self, trials: list[Trial], kills: set[int]) -> None:
        while trials:
            if len(trials) in kills:
                kills.discard(len(trials))
                self._kill_a_worker()
            trial = trials.pop()
            if self._random.random() < 0.01:
                await self._cancel(trial)
            else:
                self._judge(trial, await self._box.run(trial.program, trial.limits))

    async def _cancel(self, trial: Trial) -> None:
        task = asyncio.ensure_future(self._box.run(trial.program, trial.limits))
        await asyncio.sleep(self._random.random() * 0.01)
        task.cancel()
        await asyncio.wait([task])
        self.tried["cancelled"] += 1

    def _judge(self, trial: Trial, ran: Execution) -> None:
        self.tried[trial.kind] += 1
        if ran.status is Status.SANDBOX_FAILED:
            self.lost += 1
        elif not trial.passes(ran):
            self.anomalies.append(f"{trial.kind}: {ran}")

    def _kill_a_worker(self) -> None:
        launchers = children(os.getpid())
        supervisors = [child for launcher in launchers for child in children(launcher)]
        if supervisors:
            os.kill(self._random.choice(sorted(supervisors)), signal.SIGKILL)
            self.kills += 1


def children(pid: int) -> set[int]:
    """Return the process ids of the direct children."""
    paths = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for path in paths for child in path.read_text().split()}


@dataclass(frozen=True)
class Sample:
    """Memory, descriptors and processes of the sandbox while no program runs."""

    programs: int
    seconds: float
    host_bytes: int
    worker_bytes: int
    descriptors: int
    processes: int


def sample(programs: int, seconds: float) -> Sample:
    """Measure this process and the sandbox's processes."""
    launchers = children(os.getpid())
    supervisors = {child for launcher in launchers for child in children(launcher)}
    return Sample(
        programs, seconds, resident(os.getpid()), sum(map(resident, supervisors)),
        len(os.listdir("/proc/self/fd")), len(launchers | supervisors),
    )  # fmt: skip


def resident(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def soak(programs: int, seed: int, most_seconds: float) -> tuple[Soak, list[Sample]]:
    """Run the programs in batches, and take a sample after each batch."""
    samples = []
    started = time.monotonic()
    async with LocalSandbox(capacity=2) as box:
        soaked = Soak(box, seed)
        for batch in range(1, BATCHES + 1):
            await soaked.batch(programs // BATCHES)
            # Programs on both workers, so that a killed one is replaced before it is measured.
            quick = Program(source="import time; time.sleep(0.05)")
            await asyncio.gather(*(box.run(quick) for _ in range(4)))
            samples.append(sample(batch * (programs // BATCHES), time.monotonic() - started))
            print(samples[-1], file=sys.stderr, flush=True)
            if samples[-1].seconds > most_seconds:
                break
    if left := children(os.getpid()):
        soaked.anomalies.append(f"processes left at the end: {left}")
    return soaked, samples


def growth(soaked: Soak, samples: list[Sample]) -> list[str]:
    """Return the anomalies, and a line for everything that grew or was lost without a killed worker."""
    found = list(soaked.anomalies)
    if soaked.lost > soaked.kills:
        found.append(f"{soaked.lost} programs lost to {soaked.kills} killed workers")
    early, late = samples[1:4], samples[-3:]
    for name, most in (("host_bytes", MOST_GROWTH), ("descriptors", 0), ("processes", 0)):
        before, after = (max(getattr(one, name) for one in some) for some in (early, late))
        if after - before > most:
            found.append(f"{name} grew from {before} to {after}")
    return found


def show(soaked: Soak, samples: list[Sample], console: Console) -> None:
    """Print a table with one row per sample."""
    table = Table(title=", ".join(f"{count} {kind}" for kind, count in soaked.tried.most_common()))
    for column in ("programs", "seconds", "host MiB", "workers MiB", "descriptors", "processes"):
        table.add_column(column, justify="right")
    for one in samples:
        sizes = (f"{one.host_bytes / MIB:.1f}", f"{one.worker_bytes / MIB:.0f}")
        table.add_row(
            str(one.programs), f"{one.seconds:.0f}", *sizes, str(one.descriptors), str(one.processes)
        )
    console.print(table)


def main() -> int:
    """Run the soak and print table and anomalies; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=50_000, help="number of programs (default: 50000)")
    parser.add_argument(
        "--seed", type=int, default=0, help="chooses the programs and the cancellations (default: 0)"
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="start no batch after this time (default: none)"
    )
    options = parser.parse_args()
    if options.programs < BATCHES:
        parser.error(f"--programs must be at least {BATCHES}")
    soaked, samples = asyncio.run(soak(options.programs, options.seed, options.seconds))
    console = Console()
    show(soaked, samples, console)
    found = growth(soaked, samples)
    killed = f"{soaked.kills} workers killed, {soaked.lost} programs lost with them"
    console.print(f"{sum(soaked.tried.values())} programs, {killed}, {len(found)} anomalies")
    for anomaly in found[:20]:
        console.print(anomaly, markup=False)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
