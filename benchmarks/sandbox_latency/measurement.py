"""Measurement of several ways to run the same program in alternating rounds, and of a bare fork."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[], Awaitable[None]]
"""Runs the program once."""

_ROUNDS = 4
"""The ways alternate in rounds, so that other load on the machine affects all of them alike."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One way to run programs, with a number of clients that each run one program after another."""

    way: str
    clients: int
    programs: int
    median_seconds: float
    p99_seconds: float
    """The 99th percentile; the maximum of fewer than 100 programs."""
    programs_per_second: float


async def measure(ways: Mapping[str, Run], clients: Sequence[int], seconds: float) -> list[Measurement]:
    """Measure each way with each number of clients, for `seconds` in all of its rounds together."""
    found: dict[tuple[str, int], tuple[list[float], list[float]]] = {
        (way, count): ([], []) for count in clients for way in ways
    }
    for run in ways.values():
        await asyncio.gather(*(run() for _ in range(max(clients))))
    for _ in range(_ROUNDS):
        for (way, count), (latencies, rounds) in found.items():
            started = time.perf_counter()
            until = started + seconds / _ROUNDS
            lists = await asyncio.gather(*(_client(ways[way], until) for _ in range(count)))
            rounds.append(time.perf_counter() - started)
            latencies += [latency for of_one in lists for latency in of_one]
    return [_measurement(way, count, *lists) for (way, count), lists in found.items()]


async def _client(run: Run, until: float) -> list[float]:
    latencies = []
    while (started := time.perf_counter()) < until:
        await run()
        latencies.append(time.perf_counter() - started)
    return latencies


def _measurement(way: str, clients: int, latencies: list[float], rounds: list[float]) -> Measurement:
    ordered = sorted(latencies)
    return Measurement(
        way=way,
        clients=clients,
        programs=len(ordered),
        median_seconds=statistics.median(ordered),
        p99_seconds=ordered[-(-99 * len(ordered) // 100) - 1],
        programs_per_second=len(ordered) / sum(rounds),
    )


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
