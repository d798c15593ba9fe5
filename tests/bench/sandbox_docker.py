"""One small program in a container: the docker sandbox beside `docker exec` through the API, taking turns.

    python tests/bench/sandbox_docker.py [--programs 800]

Both run in two hardened containers of the sandbox's image. The sandbox's programs find numpy and sympy
loaded; an exec starts a bare `python3 -I`, one at a time in each container.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import docker
from rich.console import Console
from rich.table import Table
from sandbox_latency import EXPECTED, ROUNDS, SOURCE, measure

from tirjudge_sandbox import Program, Status, open_sandbox
from tirjudge_sandbox.containers import image

CLIENTS = (1, 2, 4)
CONTAINERS = 2

Run = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def execs() -> AsyncIterator[Run]:
    """A program as `docker exec`: create it, start it, read its output, ask for its exit code."""
    with contextlib.closing(docker.from_env()) as client, ThreadPoolExecutor(CONTAINERS) as threads:
        found = image.find(client)
        containers = [
            client.containers.run(
                found,
                ["python3", "-c", "import time; time.sleep(3600)"],
                detach=True,
                network_mode="none",
                read_only=True,
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                pids_limit=128,
                mem_limit="1g",
                memswap_limit="1g",
                nano_cpus=10**9,
                ipc_mode="none",
                tmpfs={"/tmp": "size=16m"},
            )
            for _ in range(CONTAINERS)
        ]
        free: asyncio.Queue[docker.models.containers.Container] = asyncio.Queue()
        for container in containers:
            free.put_nowait(container)

        async def run() -> None:
            container = await free.get()
            command = ["python3", "-I", "-c", SOURCE]
            loop = asyncio.get_running_loop()
            exit_code, output = await loop.run_in_executor(threads, container.exec_run, command)
            free.put_nowait(container)
            assert (exit_code, output.decode()) == (0, EXPECTED)

        try:
            yield run
        finally:
            for container in containers:
                container.remove(force=True)


async def main(programs: int) -> None:
    async with open_sandbox("docker", capacity=CONTAINERS) as box, execs() as in_exec:

        async def in_sandbox() -> None:
            execution = await box.run(Program(source=SOURCE))
            assert execution.status is Status.OK
            assert execution.stdout == EXPECTED

        # An exec is so much slower that a twentieth of the programs takes as long.
        ways = {"sandbox": (in_sandbox, programs), "docker exec": (in_exec, programs // 20)}
        found = {(way, clients): ([], []) for clients in CLIENTS for way in ways}
        await asyncio.gather(*(in_sandbox() for _ in range(20)), in_exec())
        for _ in range(ROUNDS):
            for (way, clients), (latencies, seconds) in found.items():
                run, count = ways[way]
                some, took = await measure(run, clients, max(count // ROUNDS, clients))
                latencies += some
                seconds.append(took)
    show(found)


def show(found: dict[tuple[str, int], tuple[list[float], list[float]]]) -> None:
    table = Table(title=f"{SOURCE}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}")
    for column in ("", "clients", "n", "median ms", "99 % ms", "programs/s", "times exec"):
        table.add_column(column, justify="right" if column else "left")
    rates = {key: len(latencies) / sum(seconds) for key, (latencies, seconds) in found.items()}
    for (way, clients), (latencies, _) in found.items():
        table.add_row(
            way,
            str(clients),
            str(len(latencies)),
            f"{statistics.median(latencies) * 1000:.2f}",
            f"{statistics.quantiles(latencies, n=100)[-1] * 1000:.2f}",
            f"{rates[way, clients]:.0f}",
            f"{rates[way, clients] / rates['docker exec', clients]:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=800, help="of the sandbox, per row (default: 800)")
    asyncio.run(main(parser.parse_args().programs))
