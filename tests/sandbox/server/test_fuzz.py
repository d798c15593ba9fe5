"""Fuzzing of the server: every request is answered, never with a 500, and its memory does not grow."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzzing import fuzz_schema, fuzzing
from tests.sandbox.server.test_serve_command import Server

JSON = {"content-type": "application/json"}
MOST_GROWTH = 64 << 20
SECONDS = 30


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server("--capacity", "1", "--max-seconds", "2", "--max-body", "1") as running:
        running.run("print(1)")
        before = _memory(running)
        yield running
        assert running.run("print(1)")["run_result"]["stdout"] == "1\n"
        assert _memory(running) < before + MOST_GROWTH


@pytest.mark.slow
def test_requests_from_the_served_schema_are_answered(running: Server) -> None:
    assert {"/run_code", "/v1/run"} <= fuzz_schema(running.url, SECONDS)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
PATHS = st.sampled_from(["a", "a/b", "../a", "/a", "", ".", "a\0", "\ud800", "b/..", "x" * 300]) | st.text(
    max_size=8
)
FIELDS = {
    "code": st.text()
    | st.sampled_from(["import time; time.sleep(9)", "1/0", "print('\ud800')", "x" * 2_000_000]),
    "language": st.sampled_from(["python", "cpp", "cobol"]),
    "run_timeout": st.floats() | st.integers(),
    "compile_timeout": st.floats(),
    "memory_limit_MB": st.integers(),
    "stdin": st.text() | st.none(),
    "files": st.dictionaries(PATHS, st.text(max_size=8) | st.sampled_from(["YQ==", ""]), max_size=3),
    "fetch_files": st.lists(PATHS, max_size=3),
    "source": st.text(),
    "bindings": st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
    "seed": st.integers(),
    "limits": st.dictionaries(
        st.sampled_from(["wall_seconds", "memory_bytes", "processes", "output_bytes", "disk_bytes"]),
        st.floats() | st.integers(),
    ),
    "client": st.text(max_size=5),
}
REQUESTS = st.fixed_dictionaries({}, optional={name: kind | VALUES for name, kind in FIELDS.items()})
WHOLE = {
    "code": "print(1)",
    "source": "print(1)",
    "language": "python",
    "run_timeout": 1,
    "limits": {"wall_seconds": 1},
}


@pytest.mark.slow
@fuzzing
@given(body=REQUESTS, whole=st.booleans(), path=st.sampled_from(["/run_code", "/v1/run"]))
def test_fields_of_any_kind_are_answered(
    running: Server, body: dict[str, Any], whole: bool, path: str
) -> None:
    if whole and "limits" not in body:
        body = {**WHOLE, **body}
    _answered(
        httpx.post(running.url + path, content=json.dumps(body), headers=JSON, timeout=SECONDS, verify=False)
    )


@pytest.mark.slow
@fuzzing
@given(
    body=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_bodies_of_any_kind_are_answered(running: Server, body: bytes) -> None:
    _answered(
        httpx.post(f"{running.url}/run_code", content=body, headers=JSON, timeout=SECONDS, verify=False)
    )


@fuzzing
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "QUERY"]),
    path=st.text(
        alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#?"), max_size=20
    ),
    headers=st.dictionaries(
        st.sampled_from(["host", "origin", "content-type", "authorization", "expect", "accept"]),
        st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20),
    ),
)
def test_requests_of_any_kind_are_answered(
    running: Server, method: str, path: str, headers: dict[str, str]
) -> None:
    response = httpx.request(method, f"{running.url}/{path}", headers=headers, timeout=SECONDS, verify=False)
    assert response.status_code < 500


def test_large_and_deep_bodies_at_once_are_answered(running: Server) -> None:
    bodies = [b"[" * 900_000, b'{"code": "' + b"x" * 900_000 + b'"}', b'{"a":' * 150_000, b" " * 2_000_000]
    statuses: list[int] = []

    def send(body: bytes) -> None:
        statuses.append(
            httpx.post(f"{running.url}/run_code", content=body, headers=JSON, timeout=60).status_code
        )

    threads = [threading.Thread(target=send, args=(body,)) for body in bodies * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == len(threads)
    assert set(statuses) <= {400, 413, 422, 429}


def _answered(response: httpx.Response) -> None:
    assert response.status_code in (200, 400, 411, 413, 422), response.text
    assert response.headers["content-type"] == "application/json"
    response.json()


def _memory(running: Server) -> int:
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10
