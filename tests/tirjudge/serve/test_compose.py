"""The shipped compose file: the servers of the judge and of the sandbox in containers of their own image."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "examples/compose/compose.yaml"
COMPOSE = ("docker-compose",) if shutil.which("docker-compose") else ("docker", "compose")
IMAGE = "tirjudge"
TOKEN = "judge's token of 32 characters".replace(" ", "-")
SECRETS = {"TIRJUDGE_SERVE_TOKEN": TOKEN, "TIRJUDGE_SANDBOX_TOKEN": "sandbox-token-of-some-length"}
MODEL = """
import http.server, json

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        text = "```python\\n%s\\n```\\n" % CHECK
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        reply = json.dumps({"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

CHECK = '''
import os, socket
def check(response):
    try:
        socket.create_connection(("127.0.0.1", 8080), 2)
        has_network = True
    except PermissionError:
        has_network = False
    return [len(response) > 8, os.getuid() >= 65536, not has_network]
'''
http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()
"""
"""A model server that writes a check, whose counts decide."""
WITH_MODEL = """
version: "3.8"
services:
  model:
    image: tirjudge
    entrypoint: [python3, -u, /model.py]
    volumes: ["{script}:/model.py:ro"]
    networks: [model]
"""

pytestmark = [
    pytest.mark.compose,
    pytest.mark.slow,
    pytest.mark.skipif(
        subprocess.run(["docker", "image", "inspect", IMAGE], capture_output=True, check=False).returncode
        != 0,
        reason="needs a Docker engine with the image of examples/compose",
    ),
]


class Containers:
    """A project of the shipped file with the model server."""

    def __init__(self, folder: Path) -> None:
        (folder / "model.py").write_text(MODEL)
        (folder / "model.yaml").write_text(WITH_MODEL.format(script=folder / "model.py"))
        files = ("-f", str(SHIPPED), "-f", str(folder / "model.yaml"))
        self._command = (*COMPOSE, "-p", f"tirjudge-{os.getpid()}", *files)

    def run(self, *words: str, **changed: str) -> subprocess.CompletedProcess[str]:
        model = {"TIRJUDGE_MODEL": "m", "TIRJUDGE_BASE_URL": "http://model:8000/v1"}
        environment = {**os.environ, **SECRETS, **model, **changed}
        command = [*self._command, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def inside(self, service: str, code: str) -> str:
        done = self.run("exec", "-T", service, "python3", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def finds(self, service: str, name: str) -> bool:
        """Return True if a host name is known inside a container."""
        # A name that is not known to the engine would be asked for during 20 seconds.
        lookup = "import os, socket\nos.environ['RES_OPTIONS'] = 'timeout:1 attempts:1'\n"
        lookup += f"try:\n    print(socket.gethostbyname({name!r}))\nexcept OSError:\n    pass"
        return bool(self.inside(service, lookup).strip())


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=60).status_code == 200:
                return
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    containers = Containers(tmp_path_factory.mktemp("compose"))
    started = containers.run("up", "--detach", "--no-build")
    assert started.returncode == 0, started.stderr
    try:
        wait_until_ready("http://127.0.0.1:8082/readyz")
        yield containers
    finally:
        containers.run("down", "--timeout", "5")


def test_a_question_is_judged_by_a_program_in_the_other_container(containers: Containers) -> None:
    question = {"prompt": "Write much.", "responses": ["short", "much longer"]}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(base_url="http://127.0.0.1:8082", timeout=60) as client:
        assert client.post("/v1/judge", json=question).status_code == 401
        answer = client.post("/v1/judge", json=question, headers=headers)
    assert answer.status_code == 200, answer.text
    verdict = answer.json()
    assert (verdict["verdict"], verdict["choice"]) == ("B", 1)
    (program,) = verdict["programs"]
    # The check had a user id of its own, and no network, not even to its server.
    kept = sorted(line[2:] for line in program["output"].splitlines())
    assert kept == ["2 of 3", "3 of 3"], program["output"]


def test_neither_container_can_write_and_the_sandbox_knows_the_judge_alone(containers: Containers) -> None:
    for service in ("judge", "sandbox"):
        tried = "try:\n    open('/etc/new', 'w')\nexcept OSError as error:\n    print(error.errno)"
        assert containers.inside(service, tried).strip() == "30", "a read-only file system"
    assert [containers.finds("judge", name) for name in ("model", "sandbox")] == [True, True]
    assert [containers.finds("sandbox", name) for name in ("model", "judge")] == [False, True]


@pytest.mark.parametrize("missing", ["TIRJUDGE_SERVE_TOKEN", "TIRJUDGE_MODEL"])
def test_a_missing_variable_is_named_before_anything_starts(missing: str, tmp_path: Path) -> None:
    done = Containers(tmp_path).run("config", **{missing: ""})
    assert done.returncode != 0
    assert "set it to " in done.stderr
