"""The remote sandbox's defence against its server: answers that are too large, too slow or impossible."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tirjudge_sandbox import Execution, Isolation, Limits, Program, Status
from tirjudge_sandbox.http.native_messages import NAME, execution_to_json
from tirjudge_sandbox.remote import RemoteSandbox

SOUND = Isolation(
    placement="root", host_files_hidden=True, network_cut=True, processes_contained=True, calls_filtered=True
)
LIMITS = Limits(output_bytes=1000, disk_bytes=1000, wall_seconds=0.5)
INFO = {
    "server": NAME,
    "version": "1",
    "capacity": 1,
    "isolation": {name: getattr(SOUND, name) for name in Isolation.__slots__},
    "most": {name: getattr(Limits(), name) for name in Limits.__slots__},
}


def http(body: bytes, status: str = "200 OK", **headers: object) -> bytes:
    named = {"content-length": len(body), "connection": "close", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def result(**changes: Any) -> bytes:
    """Return the body of an answer, with some of its fields changed."""
    fine = Execution(status=Status.OK, exit_code=0, stdout="fine\n", isolation=SOUND)
    return json.dumps(json.loads(b"".join(map(bytes, execution_to_json(fine)))) | changes).encode()


@asynccontextmanager
async def hostile(answer: Callable[[asyncio.StreamWriter], Any]) -> AsyncIterator[str]:
    """Serve like a sandbox server, but write what `answer` writes to every request that runs a program."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        try:
            if head.startswith(b"GET"):
                writer.write(http(json.dumps(INFO).encode()))
            elif (written := answer(writer)) is not None:
                await written
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def ran(answer: Callable[[asyncio.StreamWriter], Any], patience: float = 5.0) -> Execution:
    async with hostile(answer) as url, RemoteSandbox(url, patience_seconds=patience) as box:
        return await box.run(Program(source="print('fine')", fetch=("asked",)), LIMITS)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"stdout": "x" * 1001}, "more output than the limit of 1000 bytes"),
        ({"files": {"../../etc/evil": "YQ=="}}, "a file that was not asked for: '../../etc/evil'"),
        ({"files": {"asked": "QUFB" * 500}}, "more files than the limit of 1000 bytes"),
        ({"exit_code": -1}, "exit_code is -1"),
        ({"wall_seconds": float("nan")}, "wall_seconds"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:20],
)
async def test_an_impossible_result_is_a_failed_sandbox(changes: dict[str, Any], reason: str) -> None:
    found = await ran(lambda writer: writer.write(http(result(**changes))))
    assert found.status is Status.SANDBOX_FAILED
    assert "sent an answer that cannot be read" in found.detail
    assert reason in found.detail
    assert "\n" not in found.detail
    assert found.stdout == ""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: http(gzip.compress(bytes(200 << 20)), content_encoding="gzip"), "compresses its answers"),
        (lambda: http(bytes(8 << 20)), "an answer of more than"),
    ],
    ids=["compressed", "large"],
)
async def test_a_large_answer_is_not_kept(answer: Callable[[], bytes], reason: str) -> None:
    found = await ran(lambda writer: writer.write(answer()))
    assert found.status is Status.SANDBOX_FAILED
    assert reason in found.detail


async def test_a_refusal_that_nests_too_deeply_is_a_failed_sandbox() -> None:
    """Python's parser of JSON raises RecursionError for it, which is no ValueError."""
    found = await ran(lambda writer: writer.write(http(b"[" * 100_000, "400 Bad Request")))
    assert found.status is Status.SANDBOX_FAILED
    assert "HTTP status 400, [[[" in found.detail


async def test_neither_slow_bodies_nor_long_waits_outlast_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tirjudge_sandbox.remote._CONNECT_SECONDS", 0.5)

    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(http(result())[:-50])
        for _ in range(100):
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.1)

    for answer in (
        dripping,
        lambda writer: writer.write(http(b"", "429 Too Many Requests", retry_after=99999999)),
    ):
        begun = time.monotonic()
        found = await ran(answer, patience=0.5)
        assert found.status is Status.SANDBOX_FAILED
        assert time.monotonic() - begun < 5
