"""Fixtures: a real endpoint on loopback, shared by all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tirjudge.endpoint_server import EndpointServer, chat, serving
from tirjudge.compilation import admission


@pytest.fixture(scope="session")
def running() -> Iterator[EndpointServer]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: EndpointServer) -> EndpointServer:
    """Reset the endpoint: no requests yet, and answers that prefer A."""
    running.asked.clear()
    running.delay = 0.0
    running.most_at_once = 0
    running.answers(chat("<preference>A</preference>"))
    return running


@pytest.fixture
def endpoint() -> Iterator[EndpointServer]:
    """Serve a judge that always prefers the response shown first."""
    with serving() as server:
        server.script = lambda body: chat("Both are fine. <preference>A</preference>")
        yield server


@pytest.fixture
def few_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let admission edit and attack one answer of each kind, which is a twelfth of the work."""
    monkeypatch.setattr(admission, "_ANSWERS", 1)
