"""Run the real judge server on loopback, in a thread of its own, around a scripted or any other judge."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.loopback import loopback
from tirjudge.generation.base import Generator, GeneratorFailed
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.serve.app import create_app
from tirjudge.serve.client import MOST_MEMBERS, client_of_this_loop
from tirjudge.serve.service import JudgeServerSettings
from tirjudge_environments import Context
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.server.guard import App

RESPONSE = re.compile(r"Response ([A-Z]):\n(.*?)\n\n(?=Response [A-Z]:|Guidelines)", re.DOTALL)


def longest(context: Context) -> str:
    """Prefer the longest response; say nothing about one with a question mark; fail on DOWN."""
    responses = dict(RESPONSE.findall(context.prompt.messages[-1].content))
    if any("DOWN" in text for text in responses.values()):
        raise GeneratorFailed("the model's machine is off")
    if any("?" in text for text in responses.values()):
        return "I cannot say."
    return f"<preference>{max(responses, key=lambda letter: len(responses[letter]))}</preference>"


async def close_clients(url: str) -> None:
    """Close the clients that the reward functions have opened in this event loop."""
    await client_of_this_loop(url).close()
    await client_of_this_loop(url, concurrency=MOST_MEMBERS).close()


@dataclass
class JudgeServer:
    """A running server; trusted certificates are not read, which would take 70 ms for each request."""

    url: str

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60, verify=False, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, verify=False, **more)

    def judge(self, body: Any) -> Any:
        """Post to /v1/judge and return the answer."""
        response = self.post("/v1/judge", body)
        assert response.status_code == 200, response.text
        return response.json()


@contextlib.contextmanager
def judge_serving(
    generator: Generator | None = None, settings: JudgeServerSettings | None = None, **config: Any
) -> Iterator[JudgeServer]:
    """Serve a judge of these settings with this model, which reads responses first, and a bare sandbox."""

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[App]:
        sandbox = LocalSandbox(capacity=1, preload=())
        options = JudgeOptions(**{"untrained": "tir", **config})
        async with JudgeEngine(options, generator=generator, sandbox=sandbox) as judging:
            yield create_app(judging, settings or JudgeServerSettings(), version="0")

    with loopback(opened()) as url:
        yield JudgeServer(url)
