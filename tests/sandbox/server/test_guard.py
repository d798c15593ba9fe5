"""Access to the server, its limits of concurrent work, and the programs of callers that disconnect."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.sandbox.serving import Served, serving, until
from tirjudge_sandbox.server.guard import CALLER, Access, Event, Receive, Scope, Send
from tirjudge_sandbox.server.intake import Intake, IntakeLimits
from tirjudge_sandbox.server.settings import ServerSettings

TOKEN = "0123456789abcdef"
PROGRAM = {"code": "print(1)", "language": "python"}
SLOW = {"code": "import time; time.sleep(60)", "language": "python", "run_timeout": 60}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    access = Access(token=TOKEN, hosts=("sandbox.example",))
    intake = IntakeLimits(requests=3, body_bytes=4096, held_bytes=6000, body_seconds=2)
    with serving(ServerSettings(access=access, intake=intake)) as served:
        yield served


def asked(served: Served, **headers: str) -> httpx.Response:
    given = {"authorization": f"Bearer {TOKEN}", **headers}
    return served.post("/run_code", PROGRAM, headers=given)


def test_the_token_grants_access(served: Served) -> None:
    assert asked(served).status_code == 200
    assert asked(served, host="sandbox.example:8080").status_code == 200


@pytest.mark.parametrize("name", ["api-key", "X-API-Key"])
def test_the_headers_of_other_clients_hold_the_token_too(served: Served, name: str) -> None:
    assert served.post("/run_code", PROGRAM, headers={name: TOKEN}).status_code == 200
    assert served.post("/run_code", PROGRAM, headers={name: f"{TOKEN}x"}).status_code == 401
    both = {name: TOKEN, "authorization": "Bearer wrong"}
    assert served.post("/run_code", PROGRAM, headers=both).status_code == 401, "no second guess"


def test_probes_may_ask_without_a_body(served: Served) -> None:
    with httpx.Client(base_url=served.url) as client:
        for path, status in (("/v1/ping", 200), ("/metrics", 401), ("/v1/ping", 200)):
            probed, read = client.head(path), client.get(path)
            assert (probed.status_code, probed.content) == (status, b"")
            assert probed.headers["content-length"] == read.headers["content-length"]


def test_a_body_in_gzip_is_read_within_the_limits_of_bodies(served: Served) -> None:
    def sent(content: bytes, encoding: str = "gzip") -> httpx.Response:
        headers = {**_headers(), "content-encoding": encoding}
        return httpx.post(f"{served.url}/run_code", content=content, headers=headers)

    body = json.dumps({**PROGRAM, "code": "print(6 * 7)"}).encode()
    assert sent(gzip.compress(body)).json()["run_result"]["stdout"] == "42\n"
    assert sent(body, "identity").status_code == 200
    bomb = gzip.compress(b'{"code": "' + b" " * (1 << 20) + b'"}')
    assert len(bomb) < 4096
    assert (sent(bomb).status_code, sent(bomb).json()["detail"]) == (
        413,
        "a body may have 4096 bytes decompressed",
    )
    for broken in (body, gzip.compress(body)[:-9], gzip.compress(body) + b"more", b""):
        refused = sent(broken)
        assert (refused.status_code, "gzip" in refused.json()["detail"]) == (400, True), broken
    other = sent(body, "br")
    assert (other.status_code, other.headers["accept-encoding"]) == (415, "gzip")
    assert other.json()["detail"] == "the body is compressed as 'br': send it as gzip, or as it is"
    assert asked(served).status_code == 200


def test_a_field_that_nobody_set_may_be_null(served: Served) -> None:
    nulls = {"stdin": None, "files": None, "fetch_files": None, "run_timeout": None, "memory_limit_MB": None}
    headers = {"authorization": f"Bearer {TOKEN}"}
    for path, body in (
        ("/run_code", {**PROGRAM, **nulls}),
        ("/v1/run", {"source": "print(1)", "stdin": None, "seed": None, "limits": None, "fetch": None}),
    ):
        response = served.post(path, body, headers=headers)
        assert response.status_code == 200, response.text
    assert served.post("/run_code", {**PROGRAM, "code": None}, headers=headers).status_code == 422


@pytest.mark.parametrize(
    "value", ["", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, "Basic !", "Bearer ü"]
)
def test_anything_but_the_token_is_refused(served: Served, value: str) -> None:
    response = served.post("/run_code", PROGRAM, headers={"authorization": value.encode()})
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert TOKEN not in response.text


def test_a_missing_token_is_refused(served: Served) -> None:
    assert served.post("/run_code", PROGRAM).status_code == 401
    for path in ("/metrics", "/v1/info", "/openapi.json", "/nowhere"):
        assert httpx.get(served.url + path).status_code == 401
    assert httpx.get(f"{served.url}/v1/ping").status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "sandbox.example.", "a b", "[::1"]
)
def test_a_foreign_host_name_is_refused(served: Served, host: str) -> None:
    """A web page can let its own host name resolve to loopback (DNS rebinding) and so share the origin."""
    assert asked(served, host=host).status_code == 403


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "file://"])
def test_a_page_of_another_origin_is_refused(served: Served, origin: str) -> None:
    assert asked(served, origin=origin).status_code == 403
    preflight = {"origin": origin, "access-control-request-method": "POST"}
    assert httpx.options(f"{served.url}/run_code", headers=preflight).status_code == 403


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_content_types_of_html_forms_are_refused(served: Served, kind: str) -> None:
    """Browsers send these types to any origin without a preflight request."""
    assert asked(served, **{"content-type": kind}).status_code == 415


def test_a_large_body_is_refused_before_it_is_parsed(served: Served) -> None:
    for size in (4097, 30_000, 5_000_000):
        response = httpx.post(f"{served.url}/run_code", content=b"[" * size, headers=_headers(), timeout=30)
        assert response.status_code == 413
        assert response.json()["detail"] == f"a body may have 4096 bytes, this one has {size}"


MIB = 1 << 20
CROWDED = {
    "lists": b"[" + b"[]," * (3 * MIB) + b"[]]",
    "numbers": b'{"code": [' + b"1," * (3 * MIB) + b"1]}",
    "texts": b'{"code": [' + b'"",' * (4 * MIB) + b'""]}',
    "texts that end in a backslash": b'{"code": [' + rb'"\\",' * MIB + b'""]}',
    "keys": b'{"code": {' + b",".join(b'"%d":1' % number for number in range(60_000)) + b"}}",
    "long numbers": b'{"code": [' + b",".join([b"9" * 1000] * 1010) + b"]}",
    "a very long number": b'{"code": [' + b"9" * 1001 + b"]}",
    "an endless string": b'{"code": "' + b"[" * (5 * MIB),
}


def test_a_body_of_many_values_holds_nobody_up() -> None:
    """Parsed, 16 MiB of empty lists would keep all other callers waiting for seconds."""
    with serving() as served:
        for name, body in CROWDED.items():
            begun = time.monotonic()
            answer = httpx.post(f"{served.url}/v1/run", content=body, headers=_headers(), timeout=60)
            # A string has one value, however many brackets it has; this one never ends.
            assert answer.status_code == (422 if "string" in name else 413), name
            assert time.monotonic() - begun < 5, name
        # A text of many marks is one value, also if they look as if they were outside of it.
        for many in ("[,{" * 400_000, '"[,' * 600_000, '\\"[,' * 600_000 + "\\", "9" * 2_000_000):
            assert served.run("print(len(input()))", stdin=many)["run_result"]["stdout"] == f"{len(many)}\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_body_that_is_not_utf_8_is_refused(served: Served, encoding: str) -> None:
    """Python's parser reads it, but its escaped quotes would hide its values from the count."""
    body = json.dumps(PROGRAM).encode(encoding)
    response = httpx.post(f"{served.url}/run_code", content=body, headers=_headers())
    assert (response.status_code, response.json()["detail"]) == (400, "the body must be JSON in UTF-8")


async def test_large_bodies_of_one_caller_take_turns() -> None:
    """Between them there is time for others, whose bodies do not wait for them."""
    served: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(CALLER.get())

    async def ask(caller: str) -> None:
        CALLER.set(caller)
        events = asyncio.Queue[Event]()
        events.put_nowait({"type": "http.request", "body": b"[" + b"0," * 90_000 + b"0]"})
        await intake({"type": "http", "method": "POST", "headers": []}, events.get, sent)

    async def sent(event: Event) -> None:
        raise AssertionError(event)

    intake = Intake(app, IntakeLimits())
    begun = time.monotonic()
    await asyncio.gather(*map(ask, ["first"] * 4 + ["other"]))
    assert served == ["first", "other", "first", "first", "first"]
    # Three of them wait for 90,000 times four microseconds.
    assert time.monotonic() - begun > 3 * 0.36


def test_a_chunked_body_is_refused(served: Served) -> None:
    response = httpx.post(f"{served.url}/run_code", content=iter([b"{", b"}"]), headers=_headers())
    assert response.status_code == 411


def test_a_body_that_does_not_arrive_is_given_up(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(_head(length=10) + b"{")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_request_above_the_limit_is_told_to_retry(served: Served) -> None:
    with _together(*(_slow(served) for _ in range(3))):
        until(lambda: served.stats().running + served.stats().queued == 3)
        response = asked(served)
        assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    until(lambda: served.stats().running + served.stats().queued == 0)
    assert asked(served).status_code == 200


def test_a_caller_with_its_answer_may_send_the_next_request_at_once(served: Served) -> None:
    """A number of callers equal to the server's limit, each with one request at a time, is never refused."""
    with ThreadPoolExecutor(3) as callers:
        for statuses in callers.map(lambda _: list(_one_after_another(served, 20)), range(3)):
            assert set(statuses) == {200}


def test_the_bytes_of_held_bodies_are_limited(served: Served) -> None:
    body = b'{"code": "", "language": "' + b" " * 4000
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(_head(length=4096) + body)
        beside = {**PROGRAM, "stdin": " " * 3000}
        until(lambda: served.post("/run_code", beside, headers=_headers()).status_code == 429)


def test_a_caller_that_hangs_up_has_its_program_killed(served: Served) -> None:
    with _together(_slow(served)):
        until(lambda: served.stats().running == 1)
    until(lambda: served.stats().running == 0)
    assert asked(served).json()["run_result"]["stdout"] == "1\n"


def test_metrics_count_requests_and_programs(served: Served) -> None:
    before = _numbers(served)
    assert asked(served).status_code == 200
    served.post("/run_code", PROGRAM)
    httpx.get(f"{served.url}/some/path")
    after = _numbers(served)
    grown = {name for name in after if after[name] > before.get(name, 0) and "_created" not in name}
    assert 'tirjudge_http_requests_total{path="/run_code",status="200"}' in grown
    assert 'tirjudge_http_requests_total{path="/run_code",status="401"}' in grown
    assert 'tirjudge_http_requests_total{path="other",status="401"}' in grown
    assert 'tirjudge_programs_total{status="ok"}' in grown
    assert "tirjudge_program_seconds_count" in grown
    assert after["tirjudge_sandbox_capacity"] == 1.0
    assert after["tirjudge_sandbox_workers"] == 1.0


def _numbers(served: Served) -> dict[str, float]:
    text = httpx.get(f"{served.url}/metrics", headers=_headers()).text
    return {name: float(value) for name, value in re.findall(r"^([^#\s]+) (\S+)$", text, re.MULTILINE)}


def _headers() -> dict[str, str]:
    return {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}


def _head(length: int) -> bytes:
    lines = ["POST /run_code HTTP/1.1", "host: localhost", f"content-length: {length}"]
    lines += [f"{name}: {value}" for name, value in _headers().items()]
    return "\r\n".join([*lines, "", ""]).encode()


def _slow(served: Served) -> socket.socket:
    """Open a connection, send a slow program, and return without waiting for the answer."""
    connection = socket.create_connection(("127.0.0.1", served.port))
    body = json.dumps(SLOW).encode()
    connection.sendall(_head(len(body)) + body)
    return connection


def _one_after_another(served: Served, requests: int) -> Iterator[int]:
    """Return the statuses of requests that are sent one after the other on one connection."""
    body = json.dumps(PROGRAM).encode()
    with (
        socket.create_connection(("127.0.0.1", served.port)) as connection,
        connection.makefile("rb") as answers,
    ):
        for _ in range(requests):
            connection.sendall(_head(length=len(body)) + body)
            yield int(answers.readline().split()[1])
            length = 0
            while line := answers.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            answers.read(length)


@contextlib.contextmanager
def _together(*connections: socket.socket) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for connection in connections:
            stack.enter_context(connection)
        yield
