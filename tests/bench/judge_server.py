"""Requests a second and latencies of the judge server, with a judge that costs nothing.

    python tests/bench/judge_server.py [--seconds 10]

The server is a process of its own, around a scripted generator: what is measured is all but the model, so
HTTP, guard, prompt, reading and verdict. Clients are in this process, 1, 8 and 64 of them, each with one
request out. An answer other than the scripted one ends it.
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
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from tirjudge import __version__
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging import JudgeConfig, Judging
from tirjudge.serve.app import create_app
from tirjudge.serve.settings import JudgeServerSettings
from tirjudge_sandbox.bench.contenders import usable_cpus
from tirjudge_sandbox.server.lifetime import listen, serve_app

BODY = json.dumps({"prompt": "Name a prime above 10.", "responses": ["11"]})
REQUEST = (
    "POST /v1/judge HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"content-length: {len(BODY)}\r\n\r\n{BODY}"
).encode()
SCORE = 7.0
CLIENTS = (1, 8, 64)


async def main_of_server() -> None:
    """Print the URL, serve until SIGTERM."""
    settings = JudgeServerSettings()
    generator = ScriptedGenerator(lambda _: f"<score>{SCORE:g}</score>")
    async with Judging(JudgeConfig(tools=False), generator=generator) as judging:
        listening = listen("127.0.0.1", 0, settings.access)
        app = create_app(judging, settings, version=__version__)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        await serve_app(app, listening, settings.intake.requests, lambda: print(url, flush=True))


@contextlib.asynccontextmanager
async def server() -> AsyncIterator[str]:
    """Its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def load(url: str, clients: int, seconds: float) -> tuple[list[float], float]:
    """Latencies in seconds, and how long it took. Raises AssertionError for a wrong answer."""
    address = urlsplit(url)
    latencies: list[float] = []
    started = time.perf_counter()

    async def client() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        with contextlib.closing(writer):
            while (sent := time.perf_counter()) < started + seconds:
                writer.write(REQUEST)
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"content-length: (\d+)", head)
                assert length is not None, head
                body = json.loads(await reader.readexactly(int(length[1])))
                assert body.get("scores") == [SCORE], body
                latencies.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies, time.perf_counter() - started


async def measure(seconds: float) -> Table:
    title = f"/v1/judge, scripted judge, {usable_cpus()} CPUs, load {os.getloadavg()[0]:.1f}"
    table = Table(title=title, title_justify="left")
    for column in ("clients", "n", "p50 ms", "p95 ms", "p99 ms", "requests/s"):
        table.add_column(column, justify="right")
    async with server() as url:
        await load(url, max(CLIENTS), min(1.0, seconds))
        for clients in CLIENTS:
            latencies, took = await load(url, clients, seconds)
            ordered = sorted(latencies)
            quantiles = [ordered[-(-percent * len(ordered) // 100) - 1] * 1000 for percent in (50, 95, 99)]
            rate = f"{len(ordered) / took:.0f}"
            table.add_row(str(clients), str(len(ordered)), *(f"{one:.1f}" for one in quantiles), rate)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="for each number of clients")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(main_of_server())
        return 0
    Console().print(asyncio.run(measure(arguments.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
