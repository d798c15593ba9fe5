"""Programs per second over HTTP, compared with `python3 -I` behind the same route; and an overloaded server.

    python -m benchmarks.sandbox_server [--seconds 10] [--rounds 4] [--overload 20]

Two servers run the same application with the same number of concurrent programs: one uses the local sandbox,
the other starts a new interpreter for each program. They run in processes of their own and are measured in
alternation, by clients in this process. Then 4 times as many clients as a server accepts send requests at
once: it must answer the rest with 429, lose no accepted request, and not grow. The exit code is 1 if it fails
to.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.table import Table

from benchmarks.http_load import HEAD, Answer, Connection, Latencies, load, request, server
from benchmarks.peers import cpus
from tirjudge_sandbox import Execution, Isolation, Limits, Program, Status
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.lifetime import listen, serve
from tirjudge_sandbox.server.settings import ServerSettings

SOURCE = "print(sum(range(1000)))"
PRINTED = "499500\n"
REQUEST = request("/run_code", {"code": SOURCE, "language": "python"})
CLIENTS = (1, 8, 64)
SANDBOX, BASELINE = "tirjudge", "python3 -I"
ACCEPTED = 16
"""Requests that the overloaded server accepts at once."""
MOST_GROWTH = 32 << 20
"""Bytes of memory by which the overloaded server may grow."""


class NewInterpreters:
    """The usual baseline, `python3 -I -c SOURCE` as a subprocess, with one per CPU at once."""

    def __init__(self) -> None:
        self.capacity = cpus()
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
        none = Isolation(
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
            isolation=none,
        )


async def main_of_server(kind: str, held: int) -> None:
    """Print the URL and serve until SIGTERM."""
    # All clients of this benchmark are one caller.
    settings = ServerSettings(intake=IntakeLimits(requests=held, caller_requests=held))
    async with LocalSandbox() if kind == SANDBOX else NewInterpreters() as box:
        listening = listen("127.0.0.1", 0, settings.access)
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await serve(box, listening, settings, lambda _: None)


def served(kind: str, held: int = 256) -> AbstractAsyncContextManager[tuple[str, int]]:
    """Start a server of one kind; yields its URL and process id."""
    return server("benchmarks.sandbox_server", "--serve", kind, "--held", str(held))


def right(answer: Answer) -> bool:
    """Return True for the program's output."""
    return answer.status == 200 and answer.body["run_result"]["stdout"] == PRINTED


def asked_to_retry(answer: Answer) -> bool:
    """Return True for a 429 that says when to try again."""
    return answer.status == 429 and "retry-after: 1" in answer.head


async def compare(seconds: float, rounds: int) -> Table:
    """Return a table of both servers by number of clients."""
    found = {(kind, clients): Latencies() for clients in CLIENTS for kind in (SANDBOX, BASELINE)}
    async with served(SANDBOX) as (sandbox, _), served(BASELINE) as (baseline, _):
        urls = {SANDBOX: sandbox, BASELINE: baseline}
        for url in urls.values():
            await load(url, REQUEST, right, max(CLIENTS), 1)
        for _ in range(rounds):
            for kind, clients in found:
                found[kind, clients] += await load(urls[kind], REQUEST, right, clients, seconds / rounds)
    return _table(found)


def _table(found: dict[tuple[str, int], Latencies]) -> Table:
    title = f"{SOURCE} over HTTP, {cpus()} CPUs, load {os.getloadavg()[0]:.1f}"
    table = Table(title=title, title_justify="left")
    for column in ("", "clients", *HEAD, "times"):
        table.add_column(column, justify="right" if column else "left")
    for (kind, clients), latencies in found.items():
        times = f"{latencies.rate / found[BASELINE, clients].rate:.2f}" if kind == SANDBOX else ""
        table.add_row(kind, str(clients), *latencies.cells, times)
    return table


async def overload(seconds: float) -> bool:
    """Return True if a server with 4 times the clients that it accepts behaves and does not grow."""
    answers: Counter[int] = Counter()
    async with served(SANDBOX, ACCEPTED) as (url, process):
        await load(url, REQUEST, right, ACCEPTED, min(2.0, seconds))
        before = _memory(process)
        until = time.perf_counter() + seconds

        async def client() -> None:
            async with Connection.to(url) as connection:
                while time.perf_counter() < until:
                    answer = await connection.ask(REQUEST)
                    assert right(answer) or asked_to_retry(answer), answer
                    answers[answer.status] += 1
                    if answer.status != 200:
                        await asyncio.sleep(0.05)

        await asyncio.gather(*(client() for _ in range(4 * ACCEPTED)))
        growth = _memory(process) - before
    mebibytes = f"{growth / (1 << 20):+.1f} MiB in the server"
    print(f"{4 * ACCEPTED} clients, {ACCEPTED} accepted: {dict(answers)}, {mebibytes}")
    return set(answers) == {200, 429} and growth < MOST_GROWTH


def _memory(process: int) -> int:
    """Return the resident bytes of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


def main() -> int:
    """Print the table and the result of the overload; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="seconds per server and number of clients"
    )
    parser.add_argument("--rounds", type=int, default=4, help="alternations of the two servers")
    parser.add_argument("--overload", type=float, default=20.0, help="seconds of overload; 0 skips it")
    parser.add_argument("--serve", choices=(SANDBOX, BASELINE), help=argparse.SUPPRESS)
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
