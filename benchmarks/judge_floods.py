"""Latency of an honest caller of the judge server while eight other tokens flood it.

    python -m benchmarks.judge_floods [--seconds 15] [--only NAME ...] [--server COMMAND]

For each flood a new `tirjudge serve` is started, whose model is an endpoint that answers after 50 ms. One
honest caller asks one question after another on one connection; a process floods the server with eight
further tokens. The table has the honest latencies, and their median and maximum in multiples of the median
without a flood. `--server` measures an earlier version.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
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

from benchmarks.http_load import Answer, Connection
from benchmarks.peers import cpus

MIB = 1 << 20
MODEL_SECONDS = 0.05
TOKENS = 8
"""Tokens that flood, besides the honest one."""
PATIENCE = 120.0
"""Seconds after which an honest request counts as failed."""
PAUSE = 0.2
"""Seconds until a flooding connection that ended is opened again."""
QUESTION = {"prompt": "Name a prime above 10.", "responses": ["11"]}
Ask = Callable[[Connection], Awaitable[Answer]]


def request(path: str, token: str, body: bytes) -> bytes:
    """Return a POST request with a token."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}authorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def questions(number: int, count: int = 256) -> bytes:
    """Return a list of questions that no other list has."""
    return json.dumps(
        [{**QUESTION, "prompt": f"Name a prime above {number}.{index}"} for index in range(count)]
    ).encode()


def single(number: int) -> bytes:
    return json.dumps({**QUESTION, "prompt": f"Name a prime above {number}."}).encode()


def criteria(number: int) -> bytes:
    """Return a question with as many criteria as a question may have."""
    return json.dumps({**QUESTION, "criteria": [f"It is above {number}.{one}" for one in range(64)]}).encode()


def group(number: int) -> bytes:
    """Return a group of 24, which needs 276 comparisons."""
    completions = [f"{number}.{one}" for one in range(24)]
    body = {"prompt": "Name a prime.", "completions": completions, "options": {"method": "round-robin"}}
    return json.dumps(body).encode()


def large(_: int) -> bytes:
    """Return a question with a response of 5 MiB."""
    return json.dumps({**QUESTION, "responses": ["the sea has tides " * (5 * MIB // 18)]}).encode()


def long_list(number: int) -> bytes:
    """Return 256 questions of 20 KiB, 5 MiB together."""
    text = "the sea has tides " * (20 * 1024 // 18)
    return json.dumps([{**QUESTION, "responses": [f"{number}.{one} {text}"]} for one in range(256)]).encode()


def unreadable(_: int) -> bytes:
    """Return 5 MiB that are no question."""
    return json.dumps({"prompt": "?", "responses": "x" * (5 * MIB)}).encode()


FLOODS: dict[str, tuple[str, int, Callable[[int], bytes]]] = {
    "list": ("/v1/judge", 1, questions),
    "sixteen lists": ("/v1/judge", 16, questions),
    "singles": ("/v1/judge", 24, single),
    "criteria": ("/v1/judge", 8, criteria),
    "groups": ("/v1/group", 4, group),
    "bad tokens": ("/v1/judge", 8, single),
    "large": ("/v1/judge", 1, large),
    "long list": ("/v1/judge", 1, long_list),
    "unreadable": ("/v1/judge", 1, unreadable),
}
"""Name of a flood to its route, the connections of each token, and the body of a number."""


async def flood(name: str, url: str, tokens: list[str]) -> None:
    """Flood a server until this process is killed."""
    path, count, body = FLOODS[name]

    async def again(token: str, number: int) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, AssertionError):
                async with Connection.to(url) as connection:
                    while name != "bad tokens" or secrets.token_hex():
                        number += 1_000_003
                        sent = secrets.token_hex() if name == "bad tokens" else token
                        await connection.ask(request(path, sent, body(number)))
            if name != "bad tokens":
                await asyncio.sleep(PAUSE)

    places = [(token, place) for place in range(count) for token in tokens]
    await asyncio.gather(*(again(token, number) for number, (token, _) in enumerate(places)))


async def model() -> None:
    """Serve a model that scores every response with 7 after 50 ms; print the URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode().lower():
                length = head.partition("content-length: ")[2].partition("\r")[0]
                asked = (await reader.readexactly(int(length or 0)))[-20_000:]
                if head.startswith("post"):
                    await asyncio.sleep(MODEL_SECONDS)
                text = "<preference>A</preference>" if b"<preference>" in asked else "<score>7</score>"
                choice = {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                }
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "stub"}
                body = json.dumps({**answer, "choices": [choice], "usage": usage, "data": []}).encode()
                line = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                writer.write(line % len(body) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


async def honest(url: str, token: str, seconds: float) -> tuple[list[float], int]:
    """Return the latencies of a caller's questions, and the number of those that failed."""
    found: list[float] = []
    failed, number = 0, 0
    started = time.perf_counter()
    while time.perf_counter() < started + seconds:
        try:
            async with Connection.to(url) as connection:
                while (sent := time.perf_counter()) < started + seconds:
                    number += 1
                    async with asyncio.timeout(PATIENCE):
                        answer = await connection.ask(request("/v1/judge", token, single(-number)))
                    assert answer.body.get("scores") == [7.0], answer
                    found.append(time.perf_counter() - sent)
        except (OSError, asyncio.IncompleteReadError, AssertionError, TimeoutError) as error:
            print(f"failed: {error}", file=sys.stderr)
            failed += 1
            await asyncio.sleep(PAUSE)
    return found, failed


@contextlib.asynccontextmanager
async def started(*command: str, stream: str = "stdout", **more: Any) -> AsyncIterator[tuple[int, str]]:
    """Run a command; yield its process id and its first line, and end it."""
    process = await asyncio.create_subprocess_exec(*command, **{stream: asyncio.subprocess.PIPE}, **more)
    pipe = getattr(process, stream)
    rest = None
    try:
        line = (await pipe.readline()).decode()
        rest = asyncio.ensure_future(pipe.read())
        yield process.pid, line
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        if rest is not None:
            await rest


async def measured(name: str, seconds: float, server: list[str]) -> tuple[list[float], int, int]:
    """Return the honest latencies under a flood, the failures, and the server's peak memory in MiB."""
    tokens = [secrets.token_hex() for _ in range(TOKENS + 1)]
    this = (sys.executable, "-m", "benchmarks.judge_floods")
    async with contextlib.AsyncExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tokens"
        await asyncio.to_thread(file.write_text, "\n".join(tokens))
        _, endpoint = await stack.enter_async_context(started(*this, "--model"))
        options = ("--model", "stub", "--base-url", endpoint.strip(), "--no-tools", "--port", "0")
        command = (*server, "serve", *options, "--token-file", str(file))
        pid, greeting = await stack.enter_async_context(started(*command, stream="stderr"))
        url = next(word for word in greeting.split() if word.startswith("http"))
        await honest(url, tokens[0], 1.0)
        if name:
            await stack.enter_async_context(started(*this, "--flood", name, url, *tokens[1:]))
            await asyncio.sleep(min(3.0, seconds))
        found, failed = await honest(url, tokens[0], seconds)
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
        return found, failed, int(status.partition("VmHWM:")[2].split()[0]) // 1024


async def main() -> int:
    """Measure what the command line says and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--only", nargs="*", choices=tuple(FLOODS), default=[*FLOODS])
    parser.add_argument("--server", default=str(Path(sys.executable).with_name("tirjudge")))
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--flood", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.model:
        await model()
    if given.flood:
        name, url, *tokens = given.flood
        print("flooding", flush=True)
        await flood(name, url, tokens)
    title = f"an honest caller under floods, {cpus()} CPUs, load {os.getloadavg()[0]:.1f}"
    table = Table(title=title, title_justify="left")
    for column in ("flood", "n", "median ms", "max ms", "median, times", "max, times", "failed", "peak MiB"):
        table.add_column(column, justify="left" if column == "flood" else "right")
    alone = 0.0
    for name in ("", *given.only):
        found, failed, peak = await measured(name, given.seconds, given.server.split())
        median, most = statistics.median(found or [0.0]), max(found, default=0.0)
        alone = alone or median
        cells = [f"{1000 * median:.1f}", f"{1000 * most:.1f}", f"{median / alone:.1f}", f"{most / alone:.1f}"]
        table.add_row(name or "none", str(len(found)), *cells, str(failed), str(peak))
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
