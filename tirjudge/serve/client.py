"""The client of a judge server, for code that needs verdicts or rewards."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT, JsonEndpoint
from tirjudge.serve.messages import Answer, JudgeRequest

TOKEN = "TIRJUDGE_SERVE_TOKEN"


class JudgeClient:
    """An async context manager that asks one question per request, so that only failed ones are retried.

    Belongs to one event loop. At most `concurrency` requests are in flight. Transient failures (a lost
    connection, 429, 503 and the like) are tried up to `retries` more times with growing pauses.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        concurrency: int = 64,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
    ) -> None:
        """`url` is the address of `tirjudge serve`; `token` None takes TIRJUDGE_SERVE_TOKEN if it is set.

        `timeout` is in seconds, per attempt. Raises ValueError for an invalid URL.
        """
        key = os.environ.get(TOKEN) if token is None else token
        self._endpoint = JsonEndpoint(
            url, api_key=key, concurrency=concurrency, timeout=timeout, retries=retries
        )

    async def judge(self, question: JudgeRequest) -> Answer:
        """Ask one question; raises GeneratorFailed, in one line, if there is no answer."""
        return await self._endpoint.post("judge", question.model_dump(exclude_none=True), Answer)

    async def close(self) -> None:
        await self._endpoint.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def client_of_this_loop(url: str, token: str | None = None) -> JudgeClient:
    """Return the client of the running event loop, for callers that cannot keep one themselves."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    if (url, token) not in clients:
        clients[url, token] = JudgeClient(url, token=token)
    return clients[url, token]


_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str | None], JudgeClient]] = (
    WeakKeyDictionary()
)
