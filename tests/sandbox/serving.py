"""Run the real server on loopback, in a thread of its own, around a real sandbox."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.loopback import loopback
from tirjudge_sandbox import Program, Sandbox
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.server.app import create_app
from tirjudge_sandbox.server.guard import App
from tirjudge_sandbox.server.settings import ServerSettings


@dataclass
class Served:
    """A running server; trusted certificates are not read, which would take 70 ms for each request."""

    url: str
    box: Sandbox

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        """Send a POST request, whose body may hold lone surrogates."""
        headers = {"content-type": "application/json", **more.pop("headers", {})}
        return httpx.post(
            self.url + path, content=json.dumps(body), headers=headers, timeout=60, verify=False, **more
        )

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        """Post to /run_code and return the answer."""
        response = self.post("/run_code", {"code": code, "language": "python", **fields})
        assert response.status_code == 200, response.text
        return response.json()

    def stats(self) -> Any:
        return self.box.stats()

    def metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics", verify=False).text


@contextlib.contextmanager
def serving(
    settings: ServerSettings | None = None,
    box: Sandbox | None = None,
    port: int = 0,
    front: Callable[[App], App] = lambda app: app,
) -> Iterator[Served]:
    """Serve `box` (None: a bare local sandbox with one worker); `front` wraps the application."""
    box = box or LocalSandbox(capacity=1, preload=(), spare=0)
    settings = settings or ServerSettings()

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[App]:
        async with box:
            isolation = (await box.run(Program(source=""))).isolation
            yield front(create_app(box, settings, version="0", isolation=isolation))

    with loopback(opened(), port, limits=settings.intake.connections) as url:
        yield Served(url, box)


def until(true: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "the condition did not become true within 60 seconds"
        time.sleep(0.01)
