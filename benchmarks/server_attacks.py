"""Latency of an honest caller of the sandbox server while another caller attacks it, and the server's memory.

    python -m benchmarks.server_attacks [--seconds 20] [--only NAME ...] [--server COMMAND] [--one-token]

For each attack a new `tirjudge sandbox serve` is started. One honest caller opens a connection, runs
`print(1)`, closes it and starts again; an attacker in a process of its own does the same thing all the time,
without a token where none is needed. The table has the honest latencies, the server's share of them (without
the time in which the program waited for its turn and ran), those of a ping before each of them, the honest
requests that failed or took more than 30 s, the peak memory of the server, and its time to end after SIGTERM
under the attack (`--grace` is 5 s).
`--server` and `--one-token` measure an earlier version: with one token for both, the attacker comes from
another address.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.http_load import Latencies
from benchmarks.peers import cpus

MIB = 1 << 20
PATIENCE = 30.0
"""Seconds after which an honest request counts as failed."""
PAUSE = 0.5
"""Seconds until an attacker's connection that ended is opened again."""
ATTACKER_ADDRESS = "127.0.0.2"
IDLE, DECLARED, UNREAD, SENDERS, PLACES, HANGUPS = 1260, 16, 30, 2, 256, 200

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Caller:
    """A caller with its token, from one address."""

    def __init__(self, url: str, token: str, address: str):
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port, self._token, self._address = int(port), token, address

    @contextlib.asynccontextmanager
    async def connected(self, limit: int = 1 << 16) -> AsyncIterator[Streams]:
        reader, writer = await asyncio.open_connection(
            self._host, self._port, local_addr=(self._address, 0), limit=limit
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def head(self, length: int, path: str = "/v1/run") -> bytes:
        """Return the head of a request to run a program."""
        lines = (f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json")
        lines += (f"authorization: Bearer {self._token}", f"content-length: {length}", "connection: close")
        return "\r\n".join((*lines, "", "")).encode()

    async def ping(self) -> None:
        """Open a connection and ask for the route that runs nothing."""
        async with self.connected() as (reader, writer):
            writer.write(b"GET /v1/ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            await reader.readuntil(b'"pong"')

    async def run(self, program: object) -> dict[str, Any]:
        """Run a program on a new connection and return the answer; empty unless its status is 200."""
        body = json.dumps(program).encode()
        async with self.connected() as (reader, writer):
            writer.write(self.head(len(body)) + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"content-length: (\d+)", head)
            answer = await reader.readexactly(int(length[1]) if length else 0)
            return json.loads(answer) if int(head.split()[1]) == 200 else {}


async def idle(caller: Caller, _: int) -> None:
    """Open a connection and send nothing."""
    async with caller.connected() as (reader, _writer):
        await reader.read(1)


async def declared(caller: Caller, _: int) -> None:
    """Declare the largest body and send nothing of it."""
    async with caller.connected() as (reader, writer):
        writer.write(caller.head(16 * MIB))
        await reader.read(1)


async def unread(caller: Caller, number: int) -> None:
    """Have an answer of about 80 MiB made, and read nothing of it."""
    source = "open('f', 'wb').write(bytes(60 << 20))"
    program = {"source": source, "fetch": ["f"], "limits": {"disk_bytes": 64 * MIB}, "client": str(number)}
    body = json.dumps(program).encode()
    # A transport reads ahead no more than twice the limit.
    async with caller.connected(limit=1) as (_reader, writer):
        writer.write(caller.head(len(body)) + body)
        await asyncio.sleep(20)


async def values(caller: Caller, _: int) -> None:
    """Send 16 MiB of empty lists."""
    body = b"[" + b"[]," * (5 * MIB) + b"[]]"
    async with caller.connected() as (reader, writer):
        writer.write(caller.head(len(body)) + body)
        await reader.read(1)


async def _send(caller: Caller, body: bytes, path: str = "/v1/run") -> None:
    """Send a body, and wait for the whole answer."""
    async with caller.connected() as (reader, writer):
        writer.write(caller.head(len(body), path) + body)
        await reader.read()


async def numbers(caller: Caller, _: int) -> None:
    """Send 15 MiB of integers of as many digits as Python reads."""
    digits = b"[" + b",".join([b"9" * 4300] * 3600) + b"]"
    await _send(caller, b'{"source": "", "bindings": {"x": ' + digits + b"}}")


async def digits(caller: Caller, _: int) -> None:
    """Send as many long integers as are accepted."""
    values = b",".join([b"9" * 1000] * 980)
    await _send(caller, b'{"source": "", "bindings": {"x": [' + values + b"]}}")


async def mistakes(caller: Caller, _: int) -> None:
    """Send a list of 90,000 values, each of which is wrong."""
    await _send(caller, json.dumps({"source": "", "fetch": [1] * 90_000}).encode())


async def keys(caller: Caller, _: int) -> None:
    """Send an object of 240,000 members."""
    members = ",".join(f'"k{number}":1' for number in range(240_000))
    await _send(caller, b'{"source": "", "bindings": {' + members.encode() + b"}}")


async def floats(caller: Caller, _: int) -> None:
    """Send as many numbers as are accepted."""
    values = b",".join([b"0.12345678901234567"] * 35_000)
    await _send(caller, b'{"source": "", "bindings": {"x": [' + values + b"]}}")


async def texts(caller: Caller, _: int) -> None:
    """Send 15 MiB of text, all of it in escapes."""
    await _send(caller, b'{"source": "", "stdin": "' + rb"\u00e9" * (15 * MIB // 6) + b'"}')


async def outputs(caller: Caller, _: int) -> None:
    """Have 8 MiB of output made that takes six times as much in JSON."""
    program = {"source": "print('\\0' * (8 << 20), end='')", "limits": {"output_bytes": 8 * MIB}}
    await _send(caller, json.dumps(program).encode())


async def fetched(caller: Caller, _: int) -> None:
    """Have an answer of 20 MiB made for SandboxFusion's route."""
    source = "open('f', 'wb').write(bytes(15 << 20))"
    program = {"language": "python", "code": source, "fetch_files": ["f"]}
    await _send(caller, json.dumps(program).encode(), "/run_code")


async def places(caller: Caller, _: int) -> None:
    """Run a program of 0.1 s."""
    await caller.run({"source": "import time; time.sleep(0.1)"})


async def names(caller: Caller, number: int) -> None:
    """Run a program of 0.1 s under one of 40 names."""
    await caller.run({"source": "import time; time.sleep(0.1)", "client": f"name {number % 40}"})


async def hangups(caller: Caller, _: int) -> None:
    """Ask for a program and hang up at once."""
    body = json.dumps({"source": "print(1)"}).encode()
    async with caller.connected() as (_reader, writer):
        writer.write(caller.head(len(body)) + body)


async def nested(caller: Caller, _: int) -> None:
    """Fetch a thousand files from 2,000 nested folders."""
    source = "import os\nfor _ in range(2000):\n    os.mkdir('d')\n    os.chdir('d')"
    fetch = ["d/" * 1990 + f"f{number}" for number in range(1000)]
    await _send(caller, json.dumps({"source": source, "fetch": fetch}).encode())


async def sizes(caller: Caller, _: int) -> None:
    """Run a program with ever another size of the working folder."""
    await caller.run({"source": "", "limits": {"disk_bytes": MIB + secrets.randbelow(60 * MIB)}})


ATTACKS: dict[str, tuple[int, Callable[[Caller, int], Awaitable[None]]]] = {
    "idle": (IDLE, idle),
    "unread": (UNREAD, unread),
    "values": (SENDERS, values),
    "numbers": (SENDERS, numbers),
    "digits": (SENDERS, digits),
    "mistakes": (SENDERS, mistakes),
    "keys": (SENDERS, keys),
    "floats": (SENDERS, floats),
    "texts": (SENDERS, texts),
    "outputs": (SENDERS, outputs),
    "fetched": (SENDERS, fetched),
    "declared": (DECLARED, declared),
    "places": (PLACES, places),
    "names": (PLACES, names),
    "sizes": (SENDERS, sizes),
    "hangups": (HANGUPS, hangups),
    "nested": (SENDERS, nested),
}
"""Name of an attack to the connections that it keeps open and what each does, again and again."""


async def attack(name: str, url: str, token: str, address: str) -> None:
    """Attack a server until this process is killed."""
    count, act = ATTACKS[name]
    caller = Caller(url, token, address)

    async def again(number: int) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await act(caller, number)
            await asyncio.sleep(PAUSE)

    await asyncio.gather(*map(again, range(count)))


async def honest(caller: Caller, seconds: float) -> tuple[Latencies, Latencies, Latencies, int]:
    """Return the latencies of requests that were served, their server's share, and those of pings.

    The server's share is what is left without the time that the program waited for its turn and ran. The last
    item is the number of requests that were not served.
    """
    found, shares, pings, failed = Latencies(), Latencies(), Latencies(), 0
    started = time.perf_counter()
    while (sent := time.perf_counter()) < started + seconds:
        answer: dict[str, Any] = {}
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(PATIENCE):
                await caller.ping()
                pings.each.append(time.perf_counter() - sent)
                sent = time.perf_counter()
                answer = await caller.run({"source": "print(1)"})
        if answer:
            found.each.append(time.perf_counter() - sent)
            shares.each.append(found.each[-1] - answer["queued_seconds"] - answer["wall_seconds"])
        else:
            failed += 1
            await asyncio.sleep(0.05)
    return found, shares, pings, failed


async def measured(name: str, seconds: float, server: str, one_token: bool) -> list[str]:
    """Return the cells of the row of one attack; an empty name means none."""
    tokens = [secrets.token_hex(), secrets.token_hex()][: 1 if one_token else 2]
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(tokens))
        file.flush()
        grace = () if one_token else ("--grace", "5")
        process = await asyncio.create_subprocess_exec(
            server, "sandbox", "serve", "--port", "0", "--token-file", file.name, *grace,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        greeting = (await process.stderr.readline()).decode()
        url = greeting.split()[2]
        # The server may log more than a pipe holds.
        logs = asyncio.ensure_future(process.stderr.read())
        caller = Caller(url, tokens[0], "127.0.0.1")
        await honest(caller, min(1.0, seconds))
        attacker = None
        try:
            if name:
                attacker = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "benchmarks.server_attacks",
                    "--attack", name, url, tokens[-1], ATTACKER_ADDRESS,
                )  # fmt: skip
                await asyncio.sleep(min(5.0, seconds))
            found, shares, pings, failed = await honest(caller, seconds)
            peak = _peak_mib(process.pid)
            process.send_signal(signal.SIGTERM)
            begun = time.perf_counter()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 40)
            ended = f"{time.perf_counter() - begun:.1f}" if process.returncode is not None else "> 40"
        finally:
            for one in (attacker, process):
                if one is not None and one.returncode is None:
                    one.kill()
                    await one.wait()
            await logs
    cells = ["0", *"-" * 6]
    if found.each:
        kinds = (found.each, shares.each, pings.each)
        times = (time for each in kinds for time in (statistics.median(each), max(each)))
        cells = [str(len(found.each)), *(f"{1000 * time:.1f}" for time in times)]
    return [name or "none", *cells, str(failed), str(peak), ended]


def _peak_mib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


async def main() -> int:
    """Measure what the command line says and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", nargs="*", choices=("none", *ATTACKS), default=["none", *ATTACKS])
    parser.add_argument("--server", default=str(Path(sys.executable).with_name("tirjudge")))
    parser.add_argument("--one-token", action="store_true")
    parser.add_argument("--attack", nargs=4, metavar=("NAME", "URL", "TOKEN", "ADDRESS"))
    given = parser.parse_args()
    if given.attack:
        await attack(*given.attack)
        return 0
    title = f"an honest caller under attack, {cpus()} CPUs, load {os.getloadavg()[0]:.1f}"
    table = Table(title=title, title_justify="left")
    for column in (
        "attack",
        "n",
        "median ms",
        "max ms",
        "server's",
        "max",
        "ping",
        "max",
        "failed",
        "peak MiB",
        "SIGTERM s",
    ):
        table.add_column(column, justify="left" if column == "attack" else "right")
    failures = 0
    for name in given.only:
        row = await measured(name.replace("none", ""), given.seconds, given.server, given.one_token)
        failures += int(row[8]) + (row[1] == "0")
        table.add_row(*row)
    Console(width=100).print(table)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
