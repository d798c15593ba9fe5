"""The programs, a measurement of several clients that run one of them, and the time of a bare fork."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import Run


@dataclass(frozen=True, slots=True)
class Measured:
    """A program, what it prints, and the numbers of clients that it is measured with."""

    source: str
    printed: str
    clients: tuple[int, ...]

    def check(self, printed: str, otherwise: str) -> None:
        """Raise RuntimeError if a run printed anything else; `otherwise` is what went wrong."""
        if printed != self.printed:
            raise RuntimeError(f"the program printed {printed!r}: {otherwise}")


PROGRAMS: Mapping[str, Measured] = {
    "trivial": Measured("print(sum(range(1000)))", "499500\n", (1, 2, 8, 64)),
    "numpy": Measured("import numpy\nprint(numpy.arange(1000).sum())", "499500\n", (1, 8)),
    "sympy": Measured("import sympy\nprint(sympy.sympify('x + x'))", "2*x\n", (1, 8)),
    "second": Measured(
        "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass\nprint('done')",
        "done\n",
        (1,),
    ),
}
"""Programs that compute next to nothing, with and without libraries, and one that computes for a second."""

RunProgram = Callable[[Measured], Awaitable[None]]
"""Runs a program once and checks what it printed."""

_FORK_SOURCE = r"""
#include <stdio.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    enum { FORKS = 2000 };
    char output[16];
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < FORKS; i++) {
        int ends[2];
        if (pipe(ends)) return 1;
        pid_t child = fork();
        if (child < 0) return 1;
        if (!child) _exit(write(ends[1], "499500\n", 7) != 7);
        close(ends[1]);
        while (read(ends[0], output, sizeof output) > 0) {}
        close(ends[0]);
        waitpid(child, NULL, 0);
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.9f\n", ((to.tv_sec - from.tv_sec) + (to.tv_nsec - from.tv_nsec) / 1e9) / FORKS);
    return 0;
}
"""


async def measure(run: RunProgram, program: Measured, clients: int, seconds: float) -> Run:
    """Let clients run a program again and again for some seconds, each at least once.

    The rate is programs per second of all clients together; the latencies are those of one program. The 99th
    percentile is the maximum of fewer than 100 programs.
    """
    started = time.perf_counter()
    lists = await asyncio.gather(*(_client(run, program, started + seconds) for _ in range(clients)))
    took = time.perf_counter() - started
    ordered = sorted(latency for of_one in lists for latency in of_one)
    others = {
        "median, ms": statistics.median(ordered) * 1000,
        "99 %, ms": ordered[-(-99 * len(ordered) // 100) - 1] * 1000,
        "programs": float(len(ordered)),
    }
    return Run(len(ordered) / took, others)


async def _client(run: RunProgram, program: Measured, until: float) -> list[float]:
    latencies: list[float] = []
    while not latencies or time.perf_counter() < until:
        started = time.perf_counter()
        await run(program)
        latencies.append(time.perf_counter() - started)
    return latencies


def body_seconds(program: Measured) -> float:
    """Return the CPU seconds of a program in a process that has imported its libraries already."""
    code, each = compile(program.source, "<program>", "exec"), []
    for _ in range(1 if program.source.startswith("import time") else 20):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, {})  # imports, where it is the first time
            started = time.process_time()
            exec(code, {})
        each.append(time.process_time() - started)
    return statistics.median(each)


def fork_seconds() -> float | None:
    """Return the mean time of 2,000 bare forks in C with their output through a pipe.

    This is a lower bound for every way to run a program. None without a C compiler; raises
    subprocess.CalledProcessError if compiling or running fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory(prefix="tirjudge-") as folder:
        binary = Path(folder, "fork")
        command = [compiler, "-O2", "-x", "c", "-", "-o", str(binary)]
        subprocess.run(command, input=_FORK_SOURCE, text=True, capture_output=True, check=True)
        return float(subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout)
