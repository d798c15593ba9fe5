"""Notebook cells over HTTP, sent by SandboxFusion's official client."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
import sandbox_fusion as client

from tests.sandbox.serving import Served, serving
from tirjudge_sandbox.notebook.jupyter import JupyterSandbox
from tirjudge_sandbox.server.settings import ServerSettings


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(
        ServerSettings(source_bytes=1000), notebooks=JupyterSandbox(capacity=1, preload=())
    ) as served:
        yield served


def ran(served: Served, *cells: str, **fields: object) -> client.RunJupyterResponse:
    request = client.RunJupyterRequest(cells=list(cells), **fields)
    return client.run_jupyter(request, endpoint=served.url, max_attempts=1)


def test_the_official_clients_own_example(served: Served) -> None:
    """Run the cells that the client's `RunJupyterRequest` gives as its example."""
    cells = client.RunJupyterRequest.__fields__["cells"].field_info.extra["examples"][0]
    answer = ran(served, *cells)
    assert (answer.status, answer.message, answer.driver.status) == ("Success", "", "Finished")
    silent, value, printed, warned, failed = answer.cells
    assert silent.dict() == {"stdout": "", "stderr": "", "display": [], "error": []}
    assert value.display == [{"text/plain": "123"}]
    assert printed.stdout == "123\n"
    assert warned.stderr == "stderr message"
    (error,) = failed.error
    assert (error["ename"], error["evalue"]) == ("RuntimeError", "error message")
    assert error["traceback"][-1].endswith("RuntimeError: error message")


def test_files_go_in_and_come_back(served: Served) -> None:
    files = {"in": base64.b64encode(b"\xff\x00").decode()}
    answer = ran(
        served, "open('out', 'wb').write(open('in', 'rb').read()[::-1])", files=files, fetch_files=["out"]
    )
    assert {path: base64.b64decode(content) for path, content in answer.files.items()} == {"out": b"\x00\xff"}


def test_requests_do_not_share_a_kernel(served: Served) -> None:
    ran(served, "left = 1")
    (cell,) = ran(served, "left").cells
    assert cell.error[0]["ename"] == "NameError"


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"cell_timeout": 1}, {"total_timeout": 3}], ids=str)
def test_a_time_limit_is_reported(served: Served, limit: dict[str, float]) -> None:
    answer = ran(served, "print(1, flush=True)\nimport time; time.sleep(60)", "print(2)", **limit)
    assert (answer.status, answer.driver.status) == ("Failed", "TimeLimitExceeded")
    assert answer.driver.return_code is None
    assert [cell.stdout for cell in answer.cells] == ["1\n"]


def test_a_kernel_that_dies_is_a_failure_that_says_so(served: Served) -> None:
    answer = ran(served, "import os; os._exit(0)", "print(2)")
    assert (answer.status, answer.driver.status, answer.driver.return_code) == ("Failed", "Finished", -9)
    assert answer.message
    assert len(answer.cells) == 1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"cells": ["x" * 1001]}, ["body", "cells", 0]),
        ({"total_timeout": 1000}, ["body", "total_timeout"]),
        ({"fetch_files": ["../x"]}, ["body", "fetch_files"]),
    ],
    ids=str,
)
def test_bad_fields_are_named(served: Served, fields: dict[str, object], named: list[object] | None) -> None:
    response = served.post("/run_jupyter", {"cells": ["1"], **fields})
    if named is None:
        assert (response.status_code, response.json()["cells"]) == (200, [])
    else:
        assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, named)


def test_a_server_without_notebooks_says_so() -> None:
    with serving() as served, pytest.raises(Exception, match="runs no notebooks"):
        ran(served, "1")
