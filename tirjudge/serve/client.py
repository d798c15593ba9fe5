"""The client of a judge server, for code that needs verdicts or rewards."""

from __future__ import annotations

import asyncio
import os
from typing import Self
from weakref import WeakKeyDictionary

from tirjudge.generation.endpoint.http import RETRIES, TIMEOUT, JsonEndpoint
from tirjudge.records.answers import JudgeAnswer
from tirjudge.selection.group_rewards import GroupRewards
from tirjudge.serve.messages import GroupRequest, JudgeRequest, MemberAnswer, MemberRequest

TOKEN = "TIRJUDGE_SERVE_TOKEN"
MOST_MEMBERS = 4096
"""Members in flight at once; with a low limit, a group might never be complete."""


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

    async def judge(self, question: JudgeRequest) -> JudgeAnswer:
        """Ask one question; raises GeneratorFailed, in one line, if there is no answer."""
        return await self._endpoint.post("judge", question.model_dump(exclude_none=True), JudgeAnswer)

    async def group(self, group: GroupRequest) -> GroupRewards:
        """Compare the completions of one prompt; raises GeneratorFailed as `judge` does."""
        return await self._endpoint.post("group", group.model_dump(exclude_none=True), GroupRewards)

    async def member(self, member: MemberRequest) -> MemberAnswer:
        """Send one completion of a group, and wait for its reward; raises GeneratorFailed as `judge` does.

        All members of a group have to be in flight at the same time: see `concurrency`.
        """
        return await self._endpoint.post("group/member", member.model_dump(exclude_none=True), MemberAnswer)

    async def close(self) -> None:
        await self._endpoint.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def client_of_this_loop(url: str, token: str | None = None, *, concurrency: int = 64) -> JudgeClient:
    """Return the client of the running event loop, for callers that cannot keep one themselves."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    key = (url, token, concurrency)
    if key not in clients:
        clients[key] = JudgeClient(url, token=token, concurrency=concurrency)
    return clients[key]


_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str | None, int], JudgeClient]] = (
    WeakKeyDictionary()
)
