"""Requests per second and latencies of the judge server, with a scripted judge.

    python -m benchmarks.judge_server [--seconds 10]

The server runs in a process of its own with a scripted generator, so this measures everything except the
model: HTTP, access control, prompt, parsing and verdict. The clients, 1, 8 and 64 of them, run in this
process, each with one open request. Any answer but the scripted one ends the measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.http_load import HEAD, Answer, load, request, server
from benchmarks.peers import cpus
from tirjudge import __version__
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.serve.app import create_app
from tirjudge.serve.service import JudgeServerSettings
from tirjudge_sandbox.server.lifetime import listen, serve_app

REQUEST = request("/v1/judge", {"prompt": "Name a prime above 10.", "responses": ["11"]})
SCORE = 7.0
CLIENTS = (1, 8, 64)


async def main_of_server() -> None:
    """Print the URL and serve until SIGTERM."""
    settings = JudgeServerSettings()
    generator = ScriptedGenerator(lambda _: f"<score>{SCORE:g}</score>")
    async with JudgeEngine(JudgeOptions(tools=False), generator=generator) as judge_engine:
        listening = listen("127.0.0.1", 0, settings.access)
        app = create_app(judge_engine, settings, version=__version__)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        await serve_app(app, listening, settings.intake.connections, lambda: print(url, flush=True))


async def measure(seconds: float) -> Table:
    """Return a table with one row per number of clients."""
    title = f"/v1/judge, scripted judge, {cpus()} CPUs, load {os.getloadavg()[0]:.1f}"
    table = Table(title=title, title_justify="left")
    for column in ("clients", *HEAD):
        table.add_column(column, justify="right")
    async with server("benchmarks.judge_server", "--serve") as (url, _):
        # Not counted: the first requests load modules.
        await load(url, REQUEST, right, max(CLIENTS), min(1.0, seconds))
        for clients in CLIENTS:
            found = await load(url, REQUEST, right, clients, seconds)
            table.add_row(str(clients), *found.cells)
    return table


def right(answer: Answer) -> bool:
    """Return True for the scripted score."""
    return answer.body.get("scores") == [SCORE]


def main() -> int:
    """Print the table, or serve if this process is the server."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds for each number of clients")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(main_of_server())
        return 0
    Console().print(asyncio.run(measure(arguments.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
