"""Programs a second over HTTP, beside `python3 -I` behind the same route, and what overload does to a server.

    python tests/bench/sandbox_server.py [--seconds 10] [--rounds 4] [--overload 20]

Two servers are the same application with as many programs at once: one around the local sandbox, one around
a new interpreter for each program. Clients are in this process, the servers in processes of their own, and
they take turns. Then 4 times as many clients as a server holds ask at once: it must answer the others with
429, lose nothing that it accepted, and keep its size. Exit code 1 when it does not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from tirjudge_sandbox import Execution, Isolation, Limits, Program, Status
from tirjudge_sandbox.bench.contenders import usable_cpus
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.lifetime import listen, serve
from tirjudge_sandbox.server.settings import ServerSettings

SOURCE = "print(sum(range(1000)))"
PRINTED = "499500\n"
BODY = json.dumps({"code": SOURCE, "language": "python"})
REQUEST = (
    "POST /run_code HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"content-length: {len(BODY)}\r\n\r\n{BODY}"
).encode()
CLIENTS = (1, 8, 64)
OURS, BESIDE = "tirjudge", "python3 -I"
HELD = 16
"""Requests that the overloaded server takes at once."""
MOST_GROWTH = 32 << 20


class NewInterpreters:
    """What most people write: `python3 -I -c SOURCE` as a subprocess, so many at once."""

    def __init__(self) -> None:
        self.capacity = usable_cpus()
        self._free = asyncio.Semaphore(self.capacity)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, program: Program, limits: Limits = Limits()) -> Execution:
        async with self._free:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-c", program.source, stdout=pipe, stderr=pipe
            )
            stdout, stderr = await process.communicate()
        nothing = Isolation(
            placement="none",
            host_files_hidden=False,
            network_cut=False,
            processes_contained=False,
            calls_filtered=False,
        )
        return Execution(
            status=Status.ERROR if process.returncode else Status.OK,
            exit_code=process.returncode,
            stdout=stdout.decode(),
            stderr=stderr.decode(),
            isolation=nothing,
        )


async def main_of_server(kind: str, held: int) -> None:
    """Print the URL, serve until SIGTERM."""
    settings = ServerSettings(intake=IntakeLimits(requests=held))
    async with LocalSandbox() if kind == OURS else NewInterpreters() as box:
        listening = listen("127.0.0.1", 0, settings.access)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await serve(box, listening, settings, lambda _: None)


@contextlib.asynccontextmanager
async def server(kind: str, held: int = 256) -> AsyncIterator[tuple[str, int]]:
    """Its URL and process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", kind, "--held", str(held), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    try:
        yield url, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


class Connection:
    """One kept-alive connection; a client that costs the machine little, beside which a server shows."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator[Self]:
        address = urlsplit(url)
        connection = cls(*await asyncio.open_connection(address.hostname, address.port))
        try:
            yield connection
        finally:
            connection._writer.close()

    async def ask(self) -> int:
        """The status. Raises AssertionError for a wrong result."""
        self._writer.write(REQUEST)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head)
        assert length is not None, head
        body = json.loads(await self._reader.readexactly(int(length[1])))
        status = int(head.split()[1])
        if status == 200:
            assert body["run_result"]["stdout"] == PRINTED, body
        else:
            assert "retry-after: 1" in head, head
        return status


async def load(url: str, clients: int, seconds: float) -> tuple[list[float], float]:
    """Latencies in seconds, and how long it took. Each client has one request out, on one connection."""
    latencies: list[float] = []
    started = time.perf_counter()

    async def client() -> None:
        async with Connection.to(url) as connection:
            while (sent := time.perf_counter()) < started + seconds:
                assert await connection.ask() == 200
                latencies.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies, time.perf_counter() - started


async def compare(seconds: float, rounds: int) -> Table:
    found = {(kind, clients): ([], 0.0) for clients in CLIENTS for kind in (OURS, BESIDE)}
    async with server(OURS) as (ours, _), server(BESIDE) as (beside, _):
        urls = {OURS: ours, BESIDE: beside}
        for url in urls.values():
            await load(url, max(CLIENTS), 1)
        for _ in range(rounds):
            for (kind, clients), (latencies, took) in list(found.items()):
                more, also = await load(urls[kind], clients, seconds / rounds)
                found[kind, clients] = (latencies + more, took + also)
    return _table(found)


def _table(found: dict[tuple[str, int], tuple[list[float], float]]) -> Table:
    title = f"{SOURCE} over HTTP, {usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}"
    table = Table(title=title, title_justify="left")
    for column in ("", "clients", "n", "p50 ms", "p95 ms", "p99 ms", "programs/s", "times"):
        table.add_column(column, justify="right" if column else "left")
    for (kind, clients), (latencies, took) in found.items():
        ordered = sorted(latencies)
        quantiles = [ordered[-(-percent * len(ordered) // 100) - 1] * 1000 for percent in (50, 95, 99)]
        rate = len(ordered) / took
        others, other_took = found[BESIDE, clients]
        times = f"{rate * other_took / len(others):.2f}" if kind == OURS else ""
        table.add_row(
            kind, str(clients), str(len(ordered)), *(f"{one:.1f}" for one in quantiles), f"{rate:.0f}", times
        )
    return table


async def overload(seconds: float) -> bool:
    """Whether a server that is asked for 4 times what it holds behaves."""
    answers: Counter[int] = Counter()
    async with server(OURS, HELD) as (url, process):
        await load(url, HELD, min(2.0, seconds))
        before = _memory(process)
        until = time.perf_counter() + seconds

        async def client() -> None:
            async with Connection.to(url) as connection:
                while time.perf_counter() < until:
                    status = await connection.ask()
                    answers[status] += 1
                    if status != 200:
                        await asyncio.sleep(0.05)

        await asyncio.gather(*(client() for _ in range(4 * HELD)))
        growth = _memory(process) - before
    print(f"{4 * HELD} clients, {HELD} held: {dict(answers)}, {growth / (1 << 20):+.1f} MiB in the server")
    return set(answers) == {200, 429} and growth < MOST_GROWTH


def _memory(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for each server with each number of clients"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--overload", type=float, default=20.0, help="seconds of it; 0 leaves it out")
    parser.add_argument("--serve", choices=(OURS, BESIDE), help=argparse.SUPPRESS)
    parser.add_argument("--held", type=int, default=256, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(main_of_server(arguments.serve, arguments.held))
        return 0
    Console().print(asyncio.run(compare(arguments.seconds, arguments.rounds)))
    if not arguments.overload:
        return 0
    return 0 if asyncio.run(overload(arguments.overload)) else 1


if __name__ == "__main__":
    sys.exit(main())
