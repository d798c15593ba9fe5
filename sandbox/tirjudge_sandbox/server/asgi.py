"""Types of the ASGI interface, and the parts of it that middleware needs without a framework."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Who sent the request that is being served, by its token or address; see `Guard`. Contains no slash."""


class Refused(Exception):
    """A request that is not served, with the HTTP status and the reason."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None):
        """`headers`: further headers of the answer."""
        super().__init__(detail)
        self.status = status
        self._headers = headers or {}

    async def send(self, send: Send) -> None:
        """Send it as an answer, in the form that FastAPI uses."""
        # ASCII with escapes, so that any text of the request can be sent back.
        body = json.dumps({"detail": str(self)}).encode()
        headers = {"content-type": "application/json", "content-length": str(len(body)), **self._headers}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": pairs})
        await send({"type": "http.response.body", "body": body})


class HungUp(Exception):
    """The caller has disconnected."""


def header_values(scope: Scope, name: str) -> list[str]:
    """Return all values of a header; `name` must be in lower case."""
    wanted = name.encode()
    return [value.decode("latin-1") for key, value in scope["headers"] if key == wanted]


async def body_parts(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the parts of a request's body as they arrive. Raises HungUp if the caller disconnects."""
    more = True
    while more:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise HungUp
        yield event.get("body", b"")
        more = event.get("more_body", False)
