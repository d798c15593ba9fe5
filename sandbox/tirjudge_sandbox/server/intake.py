"""How much at once: requests are weighed before they are read, and dropped when their caller hangs up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from tirjudge_sandbox.server.asgi import (
    App,
    Event,
    HungUp,
    Receive,
    Refused,
    Scope,
    Send,
    body_parts,
    header_values,
)

_CLOSE = {"connection": "close"}
_RETRY = {"retry-after": "1"}
_MOST_DRAINED = 8
"""Times the largest body: what is read of a larger one before its refusal, which else would not arrive."""


class IntakeLimits(BaseModel):
    """What may be held at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: PositiveInt = 256
    """Served and waiting together."""
    body_bytes: PositiveInt = 16 << 20
    """Of one request."""
    held_bytes: PositiveInt = 256 << 20
    """Of all that are held."""
    body_seconds: PositiveFloat = 30.0
    """In which a body must have arrived."""


class Intake:
    """Holds requests with a body up to its limits; ASGI middleware.

    One too many gets 429 with Retry-After before it is read. A caller that hangs up has its request
    cancelled, and with it the program.
    """

    def __init__(self, app: App, limits: IntakeLimits):
        self._app = app
        self._limits = limits
        self._requests = self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        with contextlib.suppress(HungUp):
            try:
                length = await self._length(scope, receive)
                with self._held(length) as place:
                    body = await self._body(receive)
                    await _while_connected(self._app(scope, _Once(body, receive), place.until(send)), receive)
            except Refused as refused:
                await refused.send(send)

    async def _length(self, scope: Scope, receive: Receive) -> int:
        """What the request says of its body. One in pieces, which does not say it, is not taken."""
        if header_values(scope, "transfer-encoding"):
            raise Refused(411, "a body must come with its Content-Length", _CLOSE)
        length = max(map(int, header_values(scope, "content-length")), default=0)
        most = self._limits.body_bytes
        if length > most:
            if not header_values(scope, "expect"):
                await self._drain(receive)
            raise Refused(413, f"a body may have {most} bytes, this one has {length}", _CLOSE)
        return length

    @contextlib.contextmanager
    def _held(self, length: int) -> Iterator[_Place]:
        limits = self._limits
        if self._requests >= limits.requests or self._held_bytes + length > limits.held_bytes:
            raise Refused(429, f"{self._requests} requests are served or wait already: come again", _RETRY)
        self._count(1, length)
        place = _Place(lambda: self._count(-1, -length))
        try:
            yield place
        finally:
            place.free()

    def _count(self, requests: int, length: int) -> None:
        self._requests += requests
        self._held_bytes += length

    async def _body(self, receive: Receive) -> bytes:
        seconds = self._limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                return b"".join([part async for part in body_parts(receive)])
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {seconds:g} s", _CLOSE) from None

    async def _drain(self, receive: Receive) -> None:
        """Read some of what is not wanted: a caller in the midst of sending does not see an answer."""
        left = _MOST_DRAINED * self._limits.body_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_seconds):
                async for part in body_parts(receive):
                    left -= len(part)
                    if left < 0:
                        return


class _Place:
    """What a request takes of what may be held."""

    def __init__(self, freed: Callable[[], None]):
        self._freed = freed
        self._taken = True

    def until(self, send: Send) -> Send:
        """Sends, and is free with the answer's last part: whoever has it may ask again at once."""

        async def sent(event: Event) -> None:
            if event["type"] == "http.response.body" and not event.get("more_body", False):
                self.free()
            await send(event)

        return sent

    def free(self) -> None:
        if self._taken:
            self._taken = False
            self._freed()


class _Once:
    """Gives a body that was read already, then whatever else comes."""

    def __init__(self, body: bytes, receive: Receive):
        self._events: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]
        self._receive = receive

    async def __call__(self) -> Event:
        return self._events.pop() if self._events else await self._receive()


async def _while_connected(serving: Awaitable[None], receive: Receive) -> None:
    """Serve; cancel that, and raise HungUp once it has ended, when the caller goes."""
    work = asyncio.ensure_future(serving)
    gone = asyncio.ensure_future(_hang_up(receive))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise HungUp
        work.result()
    finally:
        for task in (work, gone):
            task.cancel()
        await asyncio.wait([work, gone])


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
