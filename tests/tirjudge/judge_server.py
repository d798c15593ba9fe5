"""The real judge server on loopback, in a thread of its own, around a scripted judge or any other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from tirjudge.generation.base import Generator
from tirjudge.judging import JudgeConfig, Judging
from tirjudge.serve.app import create_app
from tirjudge.serve.settings import JudgeServerSettings
from tirjudge_sandbox.local import LocalSandbox


@dataclass
class JudgeServer:
    """A running server."""

    url: str
    server: uvicorn.Server

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, **more)

    def judge(self, body: Any) -> Any:
        """An answer of /v1/judge."""
        response = self.post("/v1/judge", body)
        assert response.status_code == 200, response.text
        return response.json()


@contextlib.contextmanager
def judge_serving(
    generator: Generator | None = None,
    settings: JudgeServerSettings | None = None,
    **config: Any,
) -> Iterator[JudgeServer]:
    """One with these settings, around this model and a bare local sandbox of one worker."""
    ready: list[JudgeServer] = []
    began = threading.Event()

    async def serve() -> None:
        sandbox = LocalSandbox(capacity=1, preload=())
        async with Judging(JudgeConfig(**config), generator=generator, sandbox=sandbox) as judging:
            app = create_app(judging, settings or JudgeServerSettings(), version="0")
            options = {"log_level": "critical", "lifespan": "off", "ws": "none"}
            server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, **options))
            running = asyncio.ensure_future(server.serve())
            while not server.started and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            bound = server.servers[0].sockets[0].getsockname()[1]
            ready.append(JudgeServer(f"http://127.0.0.1:{bound}", server))
            began.set()
            await running

    def target() -> None:
        try:
            asyncio.run(serve())
        finally:
            began.set()

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    began.wait()
    (served,) = ready
    try:
        yield served
    finally:
        served.server.should_exit = True
        thread.join()
