"""What one small program costs: the local sandbox beside `python3 -I` as a subprocess, taking turns.

    python tests/bench/sandbox_latency.py [--programs 600]

The sandbox's programs find numpy and sympy loaded; the bare interpreter loads nothing and isolates nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from rich.console import Console
from rich.table import Table

from tirjudge_sandbox import Program, Status, open_sandbox

SOURCE = "print(sum(range(1000)))"
EXPECTED = "499500\n"
ROUNDS = 4


async def measure(
    run: Callable[[], Awaitable[None]], clients: int, programs: int
) -> tuple[list[float], float]:
    """Latency of each program in seconds, and the seconds that all took."""
    latencies: list[float] = []

    async def client() -> None:
        for _ in range(programs // clients):
            started = time.perf_counter()
            await run()
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies, time.perf_counter() - started


async def in_subprocess() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", SOURCE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, _ = await process.communicate()
    assert stdout.decode() == EXPECTED


async def main(programs: int) -> None:
    async with open_sandbox("local", capacity=2) as box:

        async def in_sandbox() -> None:
            execution = await box.run(Program(source=SOURCE))
            assert execution.status is Status.OK
            assert execution.stdout == EXPECTED

        ways = {"sandbox": in_sandbox, "python3 -I": in_subprocess}
        found = {(way, clients): ([], []) for clients in (1, 2) for way in ways}
        await asyncio.gather(*(in_sandbox() for _ in range(20)))
        for _ in range(ROUNDS):
            for (way, clients), (latencies, seconds) in found.items():
                some, took = await measure(ways[way], clients, programs // ROUNDS)
                latencies += some
                seconds.append(took)
    show(found)


def show(found: dict[tuple[str, int], tuple[list[float], list[float]]]) -> None:
    table = Table(title=f"{SOURCE}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}")
    for column in ("", "clients", "n", "median ms", "95 % ms", "programs/s"):
        table.add_column(column, justify="right" if column else "left")
    for (way, clients), (latencies, seconds) in found.items():
        table.add_row(
            way,
            str(clients),
            str(len(latencies)),
            f"{statistics.median(latencies) * 1000:.2f}",
            f"{statistics.quantiles(latencies, n=20)[-1] * 1000:.2f}",
            f"{len(latencies) / sum(seconds):.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=600, help="programs per row (default: 600)")
    asyncio.run(main(parser.parse_args().programs))
