"""`tirjudge serve` as its operator sees it: start, overload, fuzzing, shutdown and a killed model server."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any

import httpx
import pytest

from tests.fuzzing import fuzz_schema
from tests.served_command import ServedCommand
from tests.tirjudge.endpoint_server import EndpointServer, chat
from tests.tirjudge.judge_command import FAST

QUESTION = {"prompt": "Rate it.", "responses": ["x"]}

HANGING_MODEL = """
import socket, sys, time
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
while True:
    connection, _ = listening.accept()
    # The server asks for the list of models while it starts; only a question hangs.
    if connection.recv(4) == b"POST":
        print("asked", flush=True)
        time.sleep(600)
    connection.close()
"""


class Server(ServedCommand):
    """The judge server."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("serve", *FAST, *arguments)

    def ask(self, body: Any = QUESTION, path: str = "/v1/judge") -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=100)


@pytest.mark.slow
def test_accepted_requests_are_answered_before_the_shutdown(endpoint: EndpointServer) -> None:
    endpoint.delay = 1.0
    endpoint.script = lambda body: chat("<score>7</score>")
    with Server("--model", "m", "--base-url", endpoint.url) as running, ThreadPoolExecutor() as pool:
        assert running.greeting.startswith("tirjudge serve: http://127.0.0.1:")
        asked = pool.submit(running.ask)
        assert endpoint.arrived.wait(60)
        ended = pool.submit(running.end)
        assert asked.result().json()["scores"] == [7.0]
        assert ended.result() == (0, "tirjudge serve: ended\n")


@contextmanager
def hanging_model() -> Iterator[tuple[subprocess.Popen[str], IO[str], str]]:
    """Start a model that answers no question; give its process, what it prints, and its URL."""
    model = subprocess.Popen([sys.executable, "-c", HANGING_MODEL], stdout=subprocess.PIPE, text=True)
    assert model.stdout is not None
    try:
        yield model, model.stdout, f"http://127.0.0.1:{model.stdout.readline().strip()}/v1"
    finally:
        model.kill()
        model.communicate()


@pytest.mark.slow
def test_a_model_server_that_is_killed_gives_an_error_and_no_score() -> None:
    question = {"query": ["Rate it. x"], "prompts": ["Rate it."]}
    with (
        hanging_model() as (model, printed, url),
        Server("--model", "m", "--base-url", url) as running,
        ThreadPoolExecutor() as pool,
    ):
        asked = pool.submit(running.ask, question, "/get_reward")
        assert printed.readline() == "asked\n"
        model.send_signal(signal.SIGKILL)
        response = asked.result()
        assert response.status_code == 503
        (key,) = response.json()
        assert key == "detail"
        assert response.json()["detail"].startswith(f"generator_down: {url}")
        ready = httpx.get(f"{running.url}/readyz", timeout=100)
        assert (ready.status_code, httpx.get(f"{running.url}/healthz").status_code) == (503, 200)


@pytest.mark.slow
def test_the_end_comes_in_time_whatever_callers_and_model_do() -> None:
    with (
        hanging_model() as (_, printed, url),
        Server("--grace", "0.5", "--model", "m", "--base-url", url) as running,
        ThreadPoolExecutor() as pool,
    ):
        asked = pool.submit(running.ask)
        assert printed.readline() == "asked\n"
        address = ("127.0.0.1", int(running.url.rpartition(":")[2]))
        with socket.create_connection(address) as idle, socket.create_connection(address) as slow:
            idle.sendall(b"GET")
            slow.sendall(b"POST /v1/judge HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n")
            begun = time.monotonic()
            assert running.end() == (0, "tirjudge serve: ended\n")
            assert 0.5 < time.monotonic() - begun < 10
        assert isinstance(asked.exception(), httpx.TransportError)


@pytest.mark.slow
def test_overload_is_answered_with_retry_after(endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<score>7</score>")
    endpoint.delay = 2.0
    with Server("--queue", "2", "--model", "m", "--base-url", endpoint.url) as running:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: running.ask(), range(8)))
        statuses = Counter(answer.status_code for answer in answers)
        assert set(statuses) == {200, 429}
        assert statuses[200] >= 2
        assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status_code == 429)
        assert all(answer.json()["scores"] == [7.0] for answer in answers if answer.status_code == 200)
        endpoint.delay = 0.0
        assert running.ask().status_code == 200


def wait_briefly(case: Any) -> None:
    """Let no member of a group wait longer than the client for the others, who never come."""
    if case.operation.path == "/v1/group/member" and isinstance(case.body, dict):
        case.body.setdefault("wait_seconds", 0.1)
        if isinstance(case.body["wait_seconds"], int | float) and case.body["wait_seconds"] > 0.1:
            case.body["wait_seconds"] = 0.1


@pytest.mark.slow
def test_requests_from_the_served_schema_are_answered(endpoint: EndpointServer) -> None:
    endpoint.script = lambda body: chat("<score>7</score>")
    with Server("--model", "m", "--base-url", endpoint.url, "--max-body", "1") as running:
        # 502 and 503 are in the schema; a judge without a score answers 502.
        assert fuzz_schema(running.url, 20, wait_briefly) == {
            "/v1/judge", "/v1/group", "/v1/group/member", "/get_reward", "/remote_rm", "/healthz", "/readyz",
            "/metrics",
            "/v1/chat/completions", "/v1/models", "/v1/models/{name}",
        }  # fmt: skip
        assert running.ask().status_code == 200
