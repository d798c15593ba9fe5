"""Invalid requests are refused with 422, and the message names the invalid field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import sandbox_fusion

from tests.sandbox.serving import Served, serving
from tests.unknown_fields import misspelt, post_paths
from tirjudge_sandbox.http.fields import MOST_FILES
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.settings import ServerSettings

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(ServerSettings(source_bytes=1000, intake=IntakeLimits(body_bytes=16 << 20))) as served:
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
    ({"files": {str(n): "" for n in range(MOST_FILES + 1)}}, "files"),
    ({"files": {"a": "A" * (22 << 20)}, "memory_limit_MB": -1}, None),
    ({"fetch_files": ["../a"]}, "fetch_files"),
    ({"fetch_files": [f"{'d/' * 65}a"]}, "fetch_files"),
    ({"files": {f"{'d/' * 65}a": "YQ=="}}, "files"),
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


def test_an_unknown_field_of_any_object_of_any_route_is_refused(served: Served) -> None:
    document = httpx.get(f"{served.url}/openapi.json").json()
    assert sorted(post_paths(document)) == ["/run_code", "/v1/run"]
    tried = set()
    for path in post_paths(document):
        for body, way, meant in misspelt(document, path):
            response = served.post(path, body)
            assert response.status_code == 422, (path, body, response.text)
            error = response.json()["detail"][0]
            assert error["loc"] == ["body", *way]
            assert error["msg"] == f"there is no field {way[-1]!r}; did you mean {meant}?"
            tried.add((path, *way[:-1]))
    assert tried == {("/run_code",), ("/v1/run",), ("/v1/run", "limits")}


def test_a_name_like_no_other_is_answered_with_all_names(served: Served) -> None:
    (error,) = served.post("/v1/run", {"source": "", "limits": {"gpus": 1}}).json()["detail"]
    assert error["loc"] == ["body", "limits", "gpus"]
    assert error["msg"].startswith(
        "there is no field 'gpus'; there are cpu_seconds, disk_bytes, memory_bytes,"
    )


def test_many_unknown_fields_get_a_short_answer(served: Served) -> None:
    response = served.post("/v1/run", {f"{n}{'x' * 300}": 1 for n in range(5000)})
    assert response.status_code == 422
    assert len(response.content) < 10_000


def test_every_field_of_the_official_client_is_known(served: Served) -> None:
    given = sandbox_fusion.RunCodeRequest(code="print(1)", language="python")
    assert served.post("/run_code", json.loads(given.json())).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[" * 100_000, b'{"code": ' + b"1" * 5000 + b"}", b"\xff\xfe", b"null", b'"code"', b"[1]"],
    ids=lambda body: repr(body[:10]),
)
def test_bodies_that_are_not_a_request_are_refused(served: Served, body: bytes) -> None:
    response = httpx.post(f"{served.url}/run_code", content=body, headers=JSON, timeout=60)
    assert response.status_code in (400, 413, 422)
    assert response.json()["detail"]
