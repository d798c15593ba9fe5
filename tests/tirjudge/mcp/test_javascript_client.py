"""The MCP server as agents in JavaScript use it: through the official SDK of npm, over both transports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import TIRJUDGE
from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tests.tirjudge.mcp.test_mcp import ANSWERS, http_server

SOURCES = Path(__file__).with_name("javascript")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js with npm"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the SDK beside a copy of the client, from the registry that npm is configured for."""
    folder = tmp_path_factory.mktemp("javascript")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--silent", "--ignore-scripts", "--no-audit"], cwd=folder, check=True)
    return folder / "client.mjs"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[EndpointServer]:
    with serving() as server:
        yield server


@pytest.fixture(params=["stdio", "http"])
def connection(request: pytest.FixtureRequest, endpoint: EndpointServer) -> Iterator[list[str]]:
    options = ["--model", "m", "--base-url", endpoint.url, "--prompts", "tir"]
    if request.param == "stdio":
        yield ["stdio", TIRJUDGE, "mcp", *options]
    else:
        with http_server(*options) as url:
            yield ["http", url]


def called(client: Path, connection: list[str], *calls: dict[str, Any]) -> list[Any]:
    """Return the names of the tools, and the result of each call."""
    lines = "".join(f"{json.dumps(call)}\n" for call in calls)
    done = subprocess.run(
        ["node", str(client), *connection],
        input=lines,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_sdk_of_npm_runs_programs_and_gets_verdicts(
    client: Path, connection: list[str], endpoint: EndpointServer
) -> None:
    program = "print('longer:')\nprint('A' if len(response_a) > len(response_b) else 'B')"

    def judge(body: dict[str, Any]) -> Any:
        found = re.search(r"longer:\n([AB])\n", body["messages"][-1]["content"])
        return chat(f"<preference>{found[1]}</preference>" if found else f"```python\n{program}\n```\n")

    endpoint.script = judge
    calls = [{"name": "run_python_code", "arguments": arguments} for arguments, _ in ANSWERS]
    calls.append({"name": "run_python_code", "arguments": {"python_code": "1", "global_variables": None}})
    calls.append({"name": "run_python_code", "arguments": {"python_code": "'x' * 900_000"}})
    # JavaScript cuts a text between the halves of a character and sends one half, which is no valid text.
    calls.append({"name": "run_python_code", "arguments": {"python_code": "len('\ud83d')"}})
    asked = {
        "prompt": "Which is longer?",
        "responses": ["longer", "one"],
        "criteria": None,
        "reference": None,
    }
    calls.append({"name": "judge", "arguments": asked})
    names, *results = called(client, connection, *calls)
    assert names == ["judge", "run_python_code"]
    *ran, half, judged = results
    texts = [result["content"][0]["text"] for result in ran]
    null = "<status>success</status>\n<return_value>\n1\n</return_value>"
    assert texts[:-1] == [*(answer for _, answer in ANSWERS), null]
    assert 70_000 < len(texts[-1]) <= 75_000
    assert "-32700" in half["error"]
    verdict = judged["structuredContent"]
    assert (verdict["verdict"], verdict["decided"]) == ("A", True)
