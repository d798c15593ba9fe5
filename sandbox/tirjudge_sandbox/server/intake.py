"""Bounds on the requests held at once, checked before a body is read; a caller that hangs up is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import re
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
"""Part of an oversized body that is read before it is refused, in multiples of the largest body.

A caller that is still sending would not see the answer."""
# Possessive, so that a string without an end costs no more than one with an end.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_VALUE_MARKS = (b"[", b"{", b",")


class IntakeLimits(BaseModel):
    """Limits on the requests that a server holds at once."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: PositiveInt = 256
    """Requests served and waiting together."""
    body_bytes: PositiveInt = 16 << 20
    """Size of one body."""
    held_bytes: PositiveInt = 256 << 20
    """Size of all bodies held."""
    body_seconds: PositiveFloat = 30.0
    """Time in which a body must arrive."""
    body_values: PositiveInt = 500_000
    """Values in one body, of JSON: each takes about a microsecond and up to a hundred bytes to parse, so that
    a large body of small ones would hold up all other requests."""


class Intake:
    """ASGI middleware that bounds the requests with a body that are held at once.

    Requests beyond the limits get 429 with Retry-After before they are read. If a caller hangs up, its
    request and the program that it runs are cancelled.
    """

    def __init__(self, app: App, limits: IntakeLimits):
        self._app = app
        self._limits = limits
        self._requests = self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # These have no body and run no program, so metrics and probes answer under overload too.
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        with contextlib.suppress(HungUp):
            try:
                length = await self._length(scope, receive)
                with self._held(length) as place:
                    body = await self._body(receive)
                    self._check_values(body)
                    await _while_connected(self._app(scope, _Once(body, receive), place.until(send)), receive)
            except Refused as refused:
                await refused.send(send)

    async def _length(self, scope: Scope, receive: Receive) -> int:
        """Return the declared size of the body.

        Raises Refused if it is too large, or sent in chunks without a size.
        """
        if header_values(scope, "transfer-encoding"):
            # Without a declared size, nothing bounds what has to be held.
            raise Refused(411, "a body must come with its Content-Length", _CLOSE)
        length = max(map(int, header_values(scope, "content-length")), default=0)
        most = self._limits.body_bytes
        if length > most:
            # A caller that expects `100 Continue` has not sent the body yet.
            if not header_values(scope, "expect"):
                await self._drain(receive)
            raise Refused(413, f"a body may have {most} bytes, this one has {length}", _CLOSE)
        return length

    @contextlib.contextmanager
    def _held(self, length: int) -> Iterator[_Place]:
        limits = self._limits
        if self._requests >= limits.requests or self._held_bytes + length > limits.held_bytes:
            raise Refused(
                429, f"{self._requests} requests are being served or waiting: try again later", _RETRY
            )
        # The declared size is reserved before any of the body is read.
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

    def _check_values(self, body: bytes) -> None:
        """Raise Refused for a body of too many values, which are counted without parsing it."""
        most = self._limits.body_values
        # Marks inside texts count too at first, which is wrong only for a body with very many of them.
        if _marks(body) > most and _marks(_STRING.sub(b"", body)) > most:
            raise Refused(413, f"a body may have {most} values", _CLOSE)

    async def _drain(self, receive: Receive) -> None:
        """Read and discard part of the body: a caller that is still sending does not see an answer."""
        left = _MOST_DRAINED * self._limits.body_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_seconds):
                async for part in body_parts(receive):
                    left -= len(part)
                    if left < 0:
                        return


def _marks(body: bytes) -> int:
    """Count the marks of which every list, every object and every further member of one has at least one."""
    return sum(map(body.count, _VALUE_MARKS))


class _Place:
    """The share of the limits that one request holds."""

    def __init__(self, freed: Callable[[], None]):
        self._freed = freed
        self._taken = True

    def until(self, send: Send) -> Send:
        """Wrap `send` to free the place before the answer's last part, so that the caller may ask again."""

        async def sent(event: Event) -> None:
            # The caller may send its next request as soon as it has the last part.
            if event["type"] == "http.response.body" and not event.get("more_body", False):
                self.free()
            await send(event)

        return sent

    def free(self) -> None:
        if self._taken:
            self._taken = False
            self._freed()


class _Once:
    """A `receive` that returns a body that was already read, then the further events."""

    def __init__(self, body: bytes, receive: Receive):
        self._events: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]
        self._receive = receive

    async def __call__(self) -> Event:
        return self._events.pop() if self._events else await self._receive()


async def _while_connected(serving: Awaitable[None], receive: Receive) -> None:
    """Serve a request. If the caller disconnects, cancel that, wait for its end and raise HungUp."""
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
