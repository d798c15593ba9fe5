"""Connections of hostile callers: idle, slow, unread and many. Honest callers are served all the same."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests import served_command
from tests.loopback import loopback
from tests.rows import every
from tests.sandbox.serving import serving, until
from tests.served_command import ServedCommand
from tirjudge_sandbox.server.connections import ConnectionLimits, address_of
from tirjudge_sandbox.server.guard import Access, App, Receive, Scope, Send
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.settings import ServerSettings

MIB = 1 << 20
PROGRAM = {"code": "print(1)", "language": "python"}
BIG = {"source": "print('x' * (5 << 20))", "limits": {"output_bytes": 8 * MIB}}
"""A program whose answer is larger than the kernel's buffers."""
SLOW = {"code": "import time; time.sleep(60)", "language": "python", "run_timeout": 60}
HEAD = b"POST /run_code HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def connected(port: int, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    """Open a connection whose kernel buffer for answers is small, and send something."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.bind((source, 0))
    connection.connect(("127.0.0.1", port))
    connection.sendall(sent)
    return connection


def posted(body: object, path: str = "/run_code", token: str = "") -> bytes:
    """Return a request as bytes."""
    content = json.dumps(body).encode()
    head = HEAD.replace(b"/run_code", path.encode())
    head += f"authorization: Bearer {token}\r\n".encode() if token else b""
    return head + f"content-length: {len(content)}\r\n\r\n".encode() + content


def test_nothing_runs_for_a_caller_that_hangs_up_with_its_request() -> None:
    """The request and the end of the connection arrive in the same segment."""
    with serving() as served:
        before = served.box.stats().programs
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                connection.sendall(posted({"source": "print(1)"}, "/v1/run"))
        # It is accepted after all of them.
        assert served.run("print(1)")["status"] == "Success"
        assert served.box.stats().programs == before + 1


@contextlib.contextmanager
def closing() -> Iterator[Callable[..., socket.socket]]:
    """Yield `connected`; all its connections are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *values: stack.enter_context(connected(*values))


def closed(connection: socket.socket, within: float) -> bool:
    """Return True if the server ends the connection in this time; what it sent before is read."""
    connection.settimeout(within)
    try:
        while connection.recv(MIB):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


def settings(requests: int = 256, access: Access | None = None, **limits: float) -> ServerSettings:
    connections = ConnectionLimits(**limits)
    return ServerSettings(
        access=access or Access(), intake=IntakeLimits(connections=connections, requests=requests)
    )


@pytest.mark.parametrize("limits", every(2, [{"connections": 20}, {"address_connections": 20}]))
def test_idle_connections_keep_nobody_out(limits: dict[str, int]) -> None:
    """They are closed for newer ones, whereas a caller that waits for the server keeps its connection."""
    slow = {"code": "import time; time.sleep(1.5); print(2)", "language": "python"}
    with serving(settings(**limits)) as served, closing() as opened:
        waiting = opened(served.port, posted(slow))
        until(lambda: served.stats().running == 1)
        # A host may use any address of loopback, so that they count as one.
        idle = [opened(served.port, b"POST", f"127.0.0.{1 + n % 5}") for n in range(60)]
        assert served.run("print(1)")["run_result"]["stdout"] == "1\n"
        assert b'"stdout":"2\\n"' in waiting.recv(MIB)
        assert sum(closed(one, 0.01) for one in idle) >= 40


def test_a_request_that_arrives_slowly_is_given_up() -> None:
    with serving(settings(header_seconds=0.4)) as served, closing() as opened:
        silent, slow, later = (opened(served.port) for _ in range(3))
        for part in (posted(PROGRAM), b"GET /v1/pi"):
            later.sendall(part)
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < begun + 5:
                slow.sendall(b"G")
                time.sleep(0.05)
        assert 0.3 < time.monotonic() - begun < 4
        assert closed(silent, 2)
        assert closed(later, 2)
        # A whole request and a connection that is idle between two have more time.
        with httpx.Client(base_url=served.url) as client:
            for _ in range(2):
                assert client.get("/v1/ping").status_code == 200
                time.sleep(0.6)


def test_bodies_that_are_declared_and_not_sent_take_no_place() -> None:
    with serving(settings(requests=4)) as served, closing() as opened:
        for _ in range(40):
            opened(served.port, HEAD + b"content-length: 16777216\r\n\r\n{")
        assert served.post("/run_code", PROGRAM).status_code == 200


@pytest.mark.slow
def test_a_place_is_held_until_the_answer_is_written() -> None:
    with serving(settings(requests=1, write_seconds=0.5)) as served, closing() as opened:
        reading = opened(served.port, posted(BIG, "/v1/run"))
        until(lambda: served.stats().programs == 2)
        time.sleep(0.1)
        assert served.post("/run_code", PROGRAM).status_code == 429
        reading.settimeout(20)
        read = 0
        while read < 5 * MIB:
            read += len(reading.recv(MIB))
        until(lambda: served.post("/run_code", PROGRAM).status_code == 200)
        # Read by nobody, an answer is dropped after half a second, and one more for each MiB that waits.
        begun = time.monotonic()
        opened(served.port, posted(BIG, "/v1/run"))
        until(lambda: served.post("/run_code", PROGRAM).status_code == 429)
        until(lambda: served.post("/run_code", PROGRAM).status_code == 200)
        assert time.monotonic() - begun > 1


async def large_answers(scope: Scope, receive: Receive, send: Send) -> None:
    """An application whose answers have as many MiB as the path says."""
    body = bytes(int(scope["path"][1:]) * MIB)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def test_answers_that_nobody_reads_are_dropped_beyond_a_bound() -> None:
    limits = ConnectionLimits(unwritten_bytes=100 * MIB)
    app: App = large_answers
    with loopback(contextlib.nullcontext(app), limits=limits) as url, closing() as opened:
        port = int(url.rpartition(":")[2])
        before = resident()
        unread = [opened(port, b"GET /40 HTTP/1.1\r\nhost: localhost\r\n\r\n") for _ in range(8)]
        until(lambda: sum(is_reset(one) for one in unread) >= 6)
        # Two of 40 MiB fit into the bound, and there may be one that is being made.
        assert resident() - before < 200 * MIB
        # A caller that reads gets all of its answer, although others do not.
        assert len(httpx.get(f"{url}/10").content) == 10 * MIB


async def answers_in_parts(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that sends as many MiB as the path says, in parts of 64 KiB."""
    size = int(scope["path"][1:]) * MIB
    headers = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for left in range(size - (1 << 16), -1, -1 << 16):
        await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": left > 0})


def test_answers_that_are_sent_in_parts_count_as_a_whole() -> None:
    app: App = answers_in_parts
    limits = ConnectionLimits(unwritten_bytes=100 * MIB, write_seconds=120)
    with loopback(contextlib.nullcontext(app), limits=limits) as url, closing() as opened:
        port = int(url.rpartition(":")[2])
        unread = [opened(port, b"GET /40 HTTP/1.1\r\nhost: localhost\r\n\r\n") for _ in range(8)]
        until(lambda: sum(is_reset(one) for one in unread) >= 6)
        assert len(httpx.get(f"{url}/10").content) == 10 * MIB
    # A caller that reads a little at a time has no more time: 0.2 s, and 1 s for each MiB that waits.
    limits = ConnectionLimits(write_seconds=0.2)
    with loopback(contextlib.nullcontext(app), limits=limits) as url, closing() as opened:
        port = int(url.rpartition(":")[2])
        slow, begun = opened(port, b"GET /4 HTTP/1.1\r\nhost: localhost\r\n\r\n"), time.monotonic()
        with contextlib.suppress(OSError):
            while slow.recv(4096) and time.monotonic() < begun + 20:
                time.sleep(0.05)
        assert 1 < time.monotonic() - begun < 10


def test_a_large_answer_arrives_whole() -> None:
    """It is encoded in parts while it is sent: by itself, each kind of text and file is longer than one."""
    code = "import sys; print('\\0\u20ac' * 300_000, end=''); sys.stderr.write('\"' * 300_000)\n"
    code += "open('f', 'wb').write(bytes(range(256)) * 1000)"
    limits = {"output_bytes": 8 * MIB}
    with serving() as served:
        own = served.post("/v1/run", {"source": code, "fetch": ["f"], "limits": limits})
        fusion = served.run("open('f', 'wb').write(bytes(range(256)) * 1000)", fetch_files=["f"])
    assert int(own.headers["content-length"]) == len(own.content) > MIB
    content = base64.b64encode(bytes(range(256)) * 1000).decode()
    answer = own.json()
    assert (answer["stdout"], answer["stderr"]) == ("\0\u20ac" * 300_000, '"' * 300_000)
    assert answer["files"] == fusion["files"] == {"f": content}


@pytest.mark.slow
def test_large_answers_that_nobody_reads_leave_nothing_behind() -> None:
    """Without the collection of garbage, which may come late."""
    source = f"open('f', 'wb').write(bytes({20 * MIB}))"
    program = {"source": source, "fetch": ["f"], "limits": {"disk_bytes": 32 * MIB}}
    with serving(settings(unwritten_bytes=60 * MIB)) as served, closing() as opened:
        served.post("/v1/run", PROGRAM)
        before = resident()
        gc.disable()
        try:
            unread = [opened(served.port, posted(program, "/v1/run")) for _ in range(12)]
            until(lambda: sum(is_reset(one) for one in unread) >= 10)
            # Two answers fit into the bound, and a third may just have been made.
            assert resident() - before < 100 * MIB
        finally:
            gc.enable()


def test_callers_have_places_of_their_own() -> None:
    """One may take three of four places, whatever names it chooses, and as many turns as each other one."""
    tokens = "first-caller-0123456789", "other-caller-0123456789"
    access = Access(token=tokens[0], further_tokens=tokens[1:])
    slow = {"source": "import time; time.sleep(0.5)"}
    with serving(settings(requests=12, access=access)) as served, closing() as opened:
        for number in range(12):
            opened(served.port, posted({**slow, "client": f"n{number}"}, "/v1/run", tokens[0]))
        until(lambda: served.stats().queued == 8)
        first, other = ({"authorization": f"Bearer {token}"} for token in tokens)
        refused = served.post("/run_code", PROGRAM, headers=first)
        assert (refused.status_code, refused.json()["detail"][:19]) == (429, "9 requests of yours")
        answer = served.post("/v1/run", {"source": ""}, headers=other).json()
        # It waits for the running program and at most one more, not for eight.
        assert answer["queued_seconds"] < 1.4
        assert served.stats().queued >= 5


@pytest.mark.slow
def test_the_command_serves_and_ends_whatever_callers_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nulimit -n 200\nexec {served_command.TIRJUDGE} "$@"\n')
    limited.chmod(0o700)
    monkeypatch.setattr(served_command, "TIRJUDGE", str(limited))
    with ServedCommand("sandbox", "serve", "--capacity", "1", "--grace", "1") as server, closing() as opened:
        port = int(server.url.rpartition(":")[2])
        # More than its file descriptors, of which it keeps half for programs.
        for _ in range(300):
            opened(port)
        for size in (MIB, 3 * MIB, 64 * MIB):
            source = f"from pathlib import Path as P; P('a').write_bytes(bytes({size}))"
            body = {"source": source, "limits": {"disk_bytes": size}, "fetch": ["a"]}
            body["source"] += f"; P('b').write_bytes(bytes({size} + 1))"
            ended = httpx.post(f"{server.url}/v1/run", json=body, timeout=60).json()
            # The first file has the size of the limit, the second is too large.
            assert (ended["status"], "OSError" in ended["stderr"]) == ("error", True)
            assert list(ended["files"]) == ["a"]
        # Other sizes of the working folder need no other workers.
        assert "\ntirjudge_sandbox_workers_started_total 1.0\n" in httpx.get(f"{server.url}/metrics").text
        opened(port, posted(BIG, "/v1/run"))
        for _ in range(20):
            opened(port, posted(SLOW))
        opened(port, HEAD + b"content-length: 100\r\n\r\n{")
        opened(port, b"GET /")
        until(lambda: "\ntirjudge_sandbox_queued 19.0\n" in httpx.get(f"{server.url}/metrics").text)
        begun = time.monotonic()
        assert server.end() == (0, "tirjudge sandbox: ended\n")
        assert 1 < time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::"),
        ("2001:db8:1:2:bbbb::9", "2001:db8:1:2::"),
    ],
)
def test_a_caller_is_one_address_however_many_it_has(host: str, address: str) -> None:
    assert address_of(host) == address


def resident() -> int:
    """Return the resident memory of this process, in which the server runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def is_reset(connection: socket.socket) -> bool:
    """Return True if the server has dropped the connection, without reading what it sent."""
    closed = 7  # TCP_CLOSE in include/net/tcp_states.h
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == closed
