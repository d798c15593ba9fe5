"""A real HTTP server on loopback that answers as a test scripts it and records the requests."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.loopback import served


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float
    """Seconds of the monotonic clock."""
    query: str = ""


Script = Callable[[dict[str, Any]], "Response | dict[str, Any]"]


@dataclass
class EndpointServer:
    """A server that answers with `script(body)`: a Response, or a dict that is sent as JSON."""

    url: str = ""
    script: Script = field(default=lambda body: chat(""))
    delay: float = 0.0
    """Seconds that every answer takes."""
    cards: list[dict[str, Any]] = field(default_factory=list)
    """What `GET /models` lists."""
    asked: list[Asked] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    at_once: int = 0
    most_at_once: int = 0

    def answers(self, *replies: Response | dict[str, Any]) -> None:
        """Give these answers in order, and then repeat the last one."""
        rest = list(replies)
        self.script = lambda body: rest.pop(0) if len(rest) > 1 else rest[0]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.asked]

    async def handle(self, request: Request) -> Response:
        if request.method == "GET":
            return JSONResponse({"object": "list", "data": self.cards})
        body = json.loads(await request.body())
        path, query = request.url.path, request.url.query
        self.asked.append(Asked(path, dict(request.headers), body, time.monotonic(), query))
        self.arrived.set()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            # The answer is chosen now, and a client that leaves ends the delay: a request that a test gave up
            # would otherwise take an answer of the next test.
            reply = self.script(body)
            with suppress(TimeoutError):
                await asyncio.wait_for(request.receive(), self.delay)
        finally:
            self.at_once -= 1
        return JSONResponse(reply) if isinstance(reply, dict) else reply


@contextmanager
def serving() -> Iterator[EndpointServer]:
    """Run a server on a free port, in a thread of its own."""
    state = EndpointServer()
    with served(Route("/{path:path}", state.handle, methods=["GET", "POST"])) as state.url:
        yield state


def chat(text: str | None, finish: str = "stop", **more: Any) -> dict[str, Any]:
    """Return a chat answer; `more` adds fields to the choice or, where they belong there, to the message."""
    message = {"role": "assistant", "content": text}
    for name in ("tool_calls", "reasoning_content", "reasoning", "refusal"):
        if name in more:
            message[name] = more.pop(name)
    choice = {"index": 0, "message": message, "finish_reason": finish, **more}
    return {"id": "x", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def tokens(
    ids: list[int] | None, logprobs: list[float] | None, finish: str = "stop", **more: Any
) -> dict[str, Any]:
    """Return an answer of `/completions` with vLLM's fields."""
    told = {"token_logprobs": logprobs} if logprobs is not None else None
    choice = {"index": 0, "text": "", "token_ids": ids, "logprobs": told, "finish_reason": finish, **more}
    return {"id": "x", "choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


def called(source: str, call_id: str | None = "call_a") -> dict[str, Any]:
    """Return a native call of run_python as part of an assistant message."""
    function = {"name": "run_python", "arguments": json.dumps({"code": source})}
    return {"id": call_id, "type": "function", "function": function}


def failure(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """Return an error in OpenAI's form."""
    return JSONResponse({"error": {"message": message, **more}}, status, headers)


def torn() -> Response:
    """Return a response whose connection closes before the body is complete."""

    async def half() -> AsyncIterator[bytes]:
        yield b'{"choices": [{"mess'

    return StreamingResponse(half(), headers={"content-length": "500"}, media_type="application/json")
