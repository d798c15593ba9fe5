"""Invalid requests are refused with 422, and the message names the invalid field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.sandbox.serving import Served, serving
from tirjudge_sandbox.server.settings import ServerSettings

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(ServerSettings(source_bytes=1000)) as served:
        yield served


BAD_CODE = [
    ({"language": "python"}, "code"),
    ({"code": "1", "language": "cobol"}, "language"),
    ({"code": "x" * 1001}, "code"),
    ({"code": "print('\ud800')"}, "code"),
    ({"stdin": "\udfff"}, "stdin"),
    ({"run_timeout": -1}, "run_timeout"),
    ({"run_timeout": float("nan")}, "run_timeout"),
    ({"memory_limit_MB": 1 << 20}, "memory_limit_MB"),
    ({"files": {"a": "no base64!"}}, "files"),
    ({"files": {"../a": "YQ=="}}, "files"),
    ({"files": {"/etc/passwd": "YQ=="}}, "files"),
    ({"files": {"a/.": "YQ=="}}, "files"),
    ({"files": {"\ud800": "YQ=="}}, "files"),
    ({"files": {"a": "YQ==", "a/b": "YQ=="}}, "files"),
    ({"files": {str(n): "" for n in range(1001)}}, "files"),
    ({"files": {"a": "A" * (22 << 20)}, "memory_limit_MB": -1}, None),
    ({"fetch_files": ["../a"]}, "fetch_files"),
]


def fields(response: httpx.Response) -> set[str]:
    assert response.status_code == 422, response.text[:300]
    return {error["loc"][1] for error in response.json()["detail"]}


@pytest.mark.parametrize(("given", "field"), BAD_CODE, ids=lambda value: str(value)[:40])
def test_run_code_names_the_invalid_field(served: Served, given: dict[str, Any], field: str | None) -> None:
    whole = {"language": "python", "code": "print(1)"}
    body = given if set(given) & {"language"} or given == {"code": "1"} else {**whole, **given}
    response = served.post("/run_code", body)
    if field is None:
        assert response.status_code == 413
        return
    assert fields(response) == {field}
    assert len(response.content) < 2000


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"source": "\ud800"}, "source"),
        ({"bindings": {"x": ["\ud800"]}}, "bindings"),
        ({"seed": -1}, "seed"),
        ({"limits": {"cpu_seconds": -1}}, "limits"),
        ({"limits": {"wall_seconds": float("nan")}}, "limits"),
        ({"limits": {"processes": 10_000}}, "limits"),
        ({"limits": {"disk_bytes": 3}, "files": {"a": "AAAAAAAA"}}, "files"),
        ({"fetch": ["a/../../b"]}, "fetch"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_native_route_names_the_invalid_field(served: Served, given: dict[str, Any], field: str) -> None:
    assert fields(served.post("/v1/run", {"source": "print(1)", **given})) == {field}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 100_000, b'{"code": ' + b"1" * 5000 + b"}", b"\xff\xfe", b"null", b'"code"', b"[1]"],
    ids=lambda body: repr(body[:10]),
)
def test_bodies_that_are_not_a_request_are_refused(served: Served, body: bytes) -> None:
    response = httpx.post(f"{served.url}/run_code", content=body, headers=JSON, timeout=60)
    assert response.status_code in (400, 413, 422)
    assert response.json()["detail"]


def test_a_program_writes_nothing_outside_its_folder(served: Served, tmp_path) -> None:
    bait = tmp_path / "bait"
    answer = served.run(f"open({str(bait)!r}, 'w').write('x')", fetch_files=["hostname"])
    assert (answer["status"], answer["files"], bait.exists()) == ("Failed", {}, False)
