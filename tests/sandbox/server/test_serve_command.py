"""`tirjudge sandbox serve` as its operator sees it: start, requests, shutdown and killed workers."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.sandbox.serving import until
from tests.served_command import ServedCommand
from tirjudge.cli import app

TOKEN = "0123456789abcdef"
FAST = ("--backend-option", "preload=[]")
"""A sandbox that opens without numpy and sympy."""


class Server(ServedCommand):
    """The sandbox's."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("sandbox", "serve", *FAST, *arguments)

    def run(self, code: str, **more: object) -> dict[str, object]:
        body = {"code": code, "language": "python", **more}
        # Certificates are slow to load, and not used.
        response = httpx.post(f"{self.url}/run_code", json=body, timeout=60, verify=False)
        assert response.status_code == 200, response.text
        return response.json()

    def number(self, name: str) -> float:
        text = httpx.get(f"{self.url}/metrics", timeout=60, verify=False).text
        return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1])


def refused(*arguments: str, **environment: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["sandbox", "serve", *arguments], env=environment)
    assert done.stderr.count("\n") == 1, done.stderr
    return done.exit_code, done.stderr


@pytest.mark.slow
def test_accepted_requests_are_finished_before_the_shutdown() -> None:
    with Server("--capacity", "1") as running, ThreadPoolExecutor() as threads:
        assert running.greeting.startswith(f"tirjudge sandbox: {running.url} runs 1 programs at once in `")
        source = "import time; time.sleep({}); print(1)"
        asked = [threads.submit(running.run, source.format(4)) for _ in range(3)]
        # The first runs, another may pass through the spare place, and the rest waits.
        until(
            lambda: (
                running.number("tirjudge_sandbox_running") + running.number("tirjudge_sandbox_queued") == 3
            )
        )
        assert running.end() == (0, "tirjudge sandbox: ended\n")
        assert [answer.result()["run_result"]["stdout"] for answer in asked] == ["1\n"] * 3
        with pytest.raises(httpx.ConnectError):
            running.run("")


def test_a_signal_just_after_the_greeting_ends_the_server() -> None:
    code = """
        import asyncio, os, signal
        from tirjudge_sandbox.server.connections import ConnectionLimits
        from tirjudge_sandbox.server.guard import Access
        from tirjudge_sandbox.server.lifetime import listen, serve_app

        async def app(scope, receive, send):
            pass

        greet = lambda: os.kill(os.getpid(), signal.SIGTERM)
        asyncio.run(serve_app(app, listen("127.0.0.1", 0, Access()), ConnectionLimits(), greet))
        print("ended")
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=True).stdout == b"ended\n"


@pytest.mark.slow
def test_killed_workers_cost_failures_and_no_wrong_results() -> None:
    with Server("--capacity", "2") as running, ThreadPoolExecutor(8) as threads:
        source = "import time; time.sleep(0.2); print({} * 2)"
        asked = [threads.submit(running.run, source.format(n)) for n in range(16)]
        for _ in range(2):
            until(lambda: running.number("tirjudge_sandbox_running") >= 2)
            _kill_a_worker(running.process.pid)
        answers = [answer.result() for answer in asked]
        for n, answer in enumerate(answers):
            if answer["status"] == "Success":
                assert answer["run_result"]["stdout"] == f"{2 * n}\n"
            else:
                assert answer["status"] == "SandboxError"
                assert answer["message"]
        assert {answer["status"] for answer in answers} == {"Success", "SandboxError"}
        assert running.run("print(1)")["run_result"]["stdout"] == "1\n"


def test_listening_beyond_loopback_needs_a_token(tmp_path: Path) -> None:
    code, said = refused("--host", "0.0.0.0", TIRJUDGE_SANDBOX_TOKEN="")
    assert (code, "at least 16" in said) == (2, True)
    code, said = refused("--host", "0.0.0.0")
    assert (code, "--token-file" in said) == (2, True)
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    with Server("--host", "0.0.0.0", "--token-file", str(file)) as running:
        url = running.url.replace("0.0.0.0", "127.0.0.1")
        body = {"code": "print(1)", "language": "python"}
        assert httpx.post(f"{url}/run_code", json=body).status_code == 401
        assert httpx.post(f"{url}/run_code", json=body, auth=("", TOKEN)).status_code == 200
        assert TOKEN not in running.greeting
        assert TOKEN not in Path(f"/proc/{running.process.pid}/cmdline").read_text()


def test_a_server_refuses_more_than_its_largest_limits() -> None:
    with Server("--max-limit", "output_bytes=1000", "--max-seconds", "3") as running:
        limits = {"output_bytes": 1001}
        answer = httpx.post(f"{running.url}/v1/run", json={"source": "print(1)", "limits": limits})
        assert (answer.status_code, "at most 1000 is allowed" in answer.text) == (422, True)
        answer = httpx.post(f"{running.url}/v1/run", json={"source": "print('x' * 2000)"})
        assert answer.json()["status"] == "output_limit"


@pytest.mark.slow
def test_the_operator_prepares_and_a_caller_cannot(tmp_path: Path) -> None:
    (tmp_path / "prepare.py").write_text("table = [1]")
    with Server("--prepare", str(tmp_path / "prepare.py")) as running:
        for _ in range(2):
            assert running.run("table.append(2); print(table)")["run_result"]["stdout"] == "[1, 2]\n"
        for path, field in (("run", "source"), ("/run_code", "code")):
            body = {field: "print(table)", "language": "python", "prepare": "table = []"}
            if path == "run":
                path, _ = "/v1/run", body.pop("language")
            answer = httpx.post(running.url + path, json=body)
            assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["body", "prepare"])
    code, said = refused("--prepare", str(tmp_path / "none.py"))
    assert (code, "none.py: No such file or directory" in said) == (2, True)
    (tmp_path / "bad.py").write_text("bad")
    code, said = refused("--prepare", str(tmp_path / "bad.py"))
    assert (code, "bad.py: line 1: NameError: name 'bad' is not defined" in said) == (125, True)


def test_wrong_usage_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, said = refused("--port", str(taken.getsockname()[1]))
    assert (code, "Address already in use" in said) == (2, True)
    assert refused("--backend", "nosuch")[0] == 2
    code, said = refused("--max-seconds", "inf")
    assert (code, "--max-seconds must be finite" in said) == (2, True)
    code, said = refused("--max-limit", "memory=1")
    assert (code, "there is no limit 'memory'" in said) == (2, True)
    assert refused("--host", "no.such.host.invalid", TIRJUDGE_SANDBOX_TOKEN=TOKEN)[0] == 2
    assert refused("--token-file", str(tmp_path / "none"))[0] == 2
    (tmp_path / "tokens").write_text(f"{TOKEN}\n{TOKEN}\n")
    code, said = refused("--token-file", str(tmp_path / "tokens"))
    assert (code, "two callers have the same token" in said, TOKEN in said) == (2, True, False)
    code, said = refused("--backend", "remote", "--port", "0", TIRJUDGE_SANDBOX_URL="http://127.0.0.1:9")
    assert (code, "no sandbox server answers" in said) == (125, True)


def _kill_a_worker(server: int) -> None:
    children = Path(f"/proc/{server}/task/{server}/children")
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
