"""HTTP load on a server, from clients that use little CPU time themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(slots=True)
class Latencies:
    """The latencies of answered requests, in seconds."""

    each: list[float] = field(default_factory=list)
    took: float = 0.0
    """Wall seconds of the measurement, all clients together."""

    def __add__(self, other: Latencies) -> Latencies:
        return Latencies(self.each + other.each, self.took + other.took)

    @property
    def rate(self) -> float:
        return len(self.each) / self.took

    @property
    def cells(self) -> list[str]:
        """The cells of a table row: n, milliseconds at 50, 95 and 99 %, and requests per second."""
        ordered = sorted(self.each)
        quantiles = [ordered[-(-percent * len(ordered) // 100) - 1] * 1000 for percent in (50, 95, 99)]
        return [str(len(ordered)), *(f"{one:.1f}" for one in quantiles), f"{self.rate:.0f}"]


HEAD = ("n", "p50 ms", "p95 ms", "p99 ms", "requests/s")
"""The column names of `Latencies.cells`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status, its head as text, and its JSON body."""

    status: int
    head: str
    body: Any


class Connection:
    """One keep-alive connection, which sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, url: str) -> AsyncIterator[Self]:
        """Open a connection to the server at `url`."""
        address = urlsplit(url)
        connection = cls(*await asyncio.open_connection(address.hostname, address.port))
        try:
            yield connection
        finally:
            connection._writer.close()

    async def ask(self, request: bytes) -> Answer:
        """Send a request and read its response."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head)
        assert length is not None, head
        body = json.loads(await self._reader.readexactly(int(length[1])))
        return Answer(int(head.split()[1]), head, body)


def request(path: str, body: Any) -> bytes:
    """Return a POST request as bytes, ready to be sent many times."""
    text = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(text)}\r\n\r\n{text}".encode()


async def load(
    url: str, payload: bytes, right: Callable[[Answer], bool], clients: int, seconds: float
) -> Latencies:
    """Send requests for some seconds; each client waits for its answer before it sends the next.

    Raises AssertionError for an answer that is not `right`.
    """
    found = Latencies()
    started = time.perf_counter()

    async def client() -> None:
        async with Connection.to(url) as connection:
            while (sent := time.perf_counter()) < started + seconds:
                answer = await connection.ask(payload)
                assert right(answer), answer
                found.each.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(clients)))
    found.took = time.perf_counter() - started
    return found


@contextlib.asynccontextmanager
async def server(module: str, *arguments: str) -> AsyncIterator[tuple[str, int]]:
    """Run `python -m MODULE ARGUMENTS`, which prints its URL and serves until SIGTERM; yield URL and pid."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip(), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
