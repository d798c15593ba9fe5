"""Bounds on the requests held at once, checked before a body is read; a caller that hangs up is dropped."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from tirjudge_sandbox.server.connections import WRITING, ConnectionLimits, Writing
from tirjudge_sandbox.server.guard import (
    CALLER,
    App,
    Event,
    HungUp,
    Receive,
    RequestRefused,
    Scope,
    Send,
    body_parts,
    header_values,
)
from tirjudge_sandbox.workers.fair_queue import Pace

_CLOSE = {"connection": "close"}
_RETRY = {"retry-after": "1"}
_MOST_DRAINED = 8
"""Part of an oversized body that is read before it is refused, in multiples of the largest body.

A caller that is still sending would not see the answer."""
_KINDS = bytes.maketrans(b"[{:123456789", b",,,000000000")
"""Makes one mark of all that begin a value, and one digit of all."""
_PART = 1 << 20
"""Bytes of a body that are counted at once."""
_MOST_DIGITS = 1000
"""Digits of one number: reading and writing an integer takes time that grows with their square."""
_DIGITS, _BYTES = 10, 256
"""Digits, and bytes, that take as long to parse as one value."""
_VALUE_SECONDS = 4e-6
"""Time for each value of a body after which the next large body is parsed.

It is about twice as long as parsing a value, checking it and passing it on take."""
_GZIP = 16 + zlib.MAX_WBITS
_NO_GZIP = "the body is not one whole stream in gzip, which its Content-Encoding says"
_FEW = 1000
"""Values up to which a body is parsed at once."""
_ROUNDS = 5
"""Rounds of the event loop after which it is known that a connection ended together with its request."""


class IntakeLimits(BaseModel):
    """Limits on the requests that a server holds at once, and on its connections."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connections: ConnectionLimits = ConnectionLimits()
    requests: PositiveInt = 256
    """Requests served and waiting together, until their answers are written."""
    caller_requests: PositiveInt | None = None
    """Those of one caller; None means three quarters, so that one caller leaves room for others."""
    body_bytes: PositiveInt = 16 << 20
    """Size of one body."""
    held_bytes: PositiveInt = 256 << 20
    """Size of all bodies held, as far as they have arrived; one caller's may take three quarters."""
    body_seconds: PositiveFloat = 30.0
    """Time in which a body must arrive."""
    body_values: PositiveInt = 100_000
    """Values, keys and tens of digits in one body, of JSON: parsing a large body of small ones would hold up
    all other requests."""


class Intake:
    """ASGI middleware that bounds the requests with a body that are held at once.

    Requests beyond the limits get 429 with Retry-After, before they are read where that is possible. A
    request is held until its answer has been written, or its connection is closed. If a caller hangs up, its
    request and the program that it runs are cancelled.
    """

    def __init__(self, app: App, limits: IntakeLimits):
        self._app = app
        self._limits = limits
        self._held = _Held(limits)
        self._parsing = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # These have no body and run no program, so metrics and probes answer under overload too.
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        with contextlib.suppress(HungUp), _Place(self._held, CALLER.get()) as place:
            try:
                await self._length(scope, receive)
                place.check()
                body = await self._body(receive, place, _unzip(scope))
                values = await self._values(body) + len(body) // _BYTES
                # Only now: a caller that declares a body and does not send it keeps nobody out.
                place.take()
            except RequestRefused as refused:
                await refused.send(send)
                return
            writing: Writing | None = scope.get("extensions", {}).get(WRITING)
            answer = _Answer(send, place, writing)

            async def served(once: _Once) -> None:
                await self._turn(values)
                await self._app(scope, once, answer)

            try:
                await _while_connected(lambda: served(_Once(body, receive)), receive)
            finally:
                if writing is not None and answer.ended:
                    # The application's copies of the answer are gone by now; what is not read yet remains.
                    del body
                    await writing.drain()

    async def _length(self, scope: Scope, receive: Receive) -> None:
        """Raise RequestRefused for a body whose declared size is too large, or that has none."""
        if header_values(scope, "transfer-encoding"):
            # Without a declared size, nothing bounds what has to be held.
            raise RequestRefused(411, "a body must come with its Content-Length", _CLOSE)
        length = max(map(int, header_values(scope, "content-length")), default=0)
        most = self._limits.body_bytes
        if length > most:
            # A caller that expects `100 Continue` has not sent the body yet.
            if not header_values(scope, "expect"):
                await self._drain(receive)
            raise RequestRefused(413, f"a body may have {most} bytes, this one has {length}", _CLOSE)

    async def _body(self, receive: Receive, place: _Place, unzip: Any) -> bytes:
        """Return the body, decompressed by `unzip` if that is not None. Raises RequestRefused."""
        seconds, most = self._limits.body_seconds, self._limits.body_bytes
        parts, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                async for part in body_parts(receive):
                    while part:
                        piece = part if unzip is None else unzip.decompress(part, _PART)
                        part = b"" if unzip is None else unzip.unconsumed_tail
                        size += len(piece)
                        if size > most:
                            raise RequestRefused(413, f"a body may have {most} bytes decompressed", _CLOSE)
                        place.hold(len(piece))
                        parts.append(piece)
                        if part:
                            # Others are served between the pieces.
                            await asyncio.sleep(0)
        except TimeoutError:
            raise RequestRefused(408, f"the body did not arrive within {seconds:g} s", _CLOSE) from None
        except zlib.error:
            raise RequestRefused(400, _NO_GZIP, _CLOSE) from None
        if unzip is not None and (not unzip.eof or unzip.unused_data):
            raise RequestRefused(400, _NO_GZIP, _CLOSE)
        return b"".join(parts)

    async def _values(self, body: bytes) -> int:
        """Return about how many values a body has, without parsing it. Raises RequestRefused for too many."""
        # No JSON holds this byte, except in encodings of two or four bytes for a character, whose escaped
        # quotes would pass for ends of texts below.
        if b"\0" in body:
            raise RequestRefused(400, "the body must be JSON in UTF-8")
        most = self._limits.body_values
        # At first, separators inside texts count too; only bodies with very many of them are counted again.
        values, long = await _counted(body)
        if values <= most and not long:
            return values
        # Without escapes, every quote begins or ends a text.
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
        texts = body.count(b'"') // 2
        # A value has at most two texts, itself and its key, and cutting out more would take seconds.
        if texts <= 2 * most:
            values, long = await _counted(b"".join(body.split(b'"')[::2]))
        if long:
            raise RequestRefused(413, f"a number may have {_MOST_DIGITS} digits", _CLOSE)
        if values > most:
            raise RequestRefused(413, f"a body may have {most} values", _CLOSE)
        return values

    async def _turn(self, values: int) -> None:
        """Wait until a body of so many values may be parsed.

        Callers take turns, and everything else gets more time than the bodies.
        """
        if values > _FEW:
            await self._parsing.start(CALLER.get(), values * _VALUE_SECONDS)

    async def _drain(self, receive: Receive) -> None:
        """Read and discard part of the body: a caller that is still sending does not see an answer."""
        left = _MOST_DRAINED * self._limits.body_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_seconds):
                async for part in body_parts(receive):
                    left -= len(part)
                    if left < 0:
                        return


def _unzip(scope: Scope) -> Any:
    """Return the decompressor of a request's body, None for plain bodies. Raises RequestRefused."""
    encoding = ", ".join(header_values(scope, "content-encoding")).strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in ("gzip", "x-gzip"):
        text = f"the body is compressed as {encoding[:40]!r}: send it as gzip, or as it is"
        raise RequestRefused(415, text, {**_CLOSE, "accept-encoding": "gzip"})
    return zlib.decompressobj(wbits=_GZIP)


async def _counted(body: bytes) -> tuple[int, bool]:
    """Return about how many values a body has, and whether one of its numbers is too long.

    Every list and object, and every key and further member of one, has at least one of the marks.
    """
    values, long = 0, False
    for start in range(0, len(body), _PART):
        if start:
            # Others are served between the parts.
            await asyncio.sleep(0)
        # With the beginning of the next part, so that a long number across the border is found.
        part = body[start : start + _PART + _MOST_DIGITS].translate(_KINDS)
        values += part.count(b",") + part.count(b"0") // _DIGITS
        long = long or b"0" * (_MOST_DIGITS + 1) in part
    return values, long


class _Held:
    """The requests and the bytes that are held, together and by caller."""

    def __init__(self, limits: IntakeLimits):
        self._most_requests = limits.requests, limits.caller_requests or _share(limits.requests)
        # One body must always fit.
        self._most_bytes = limits.held_bytes, max(limits.body_bytes, _share(limits.held_bytes))
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def check(self, caller: str, requests: int, size: int) -> None:
        """Raise RequestRefused if so many more requests and bytes would exceed a limit."""
        for counts, (most, callers), more in (
            (self._requests, self._most_requests, requests),
            (self._bytes, self._most_bytes, size),
        ):
            own = more and counts[caller] + more > callers
            if own or (more and counts.total() + more > most):
                held = self._requests[caller] if own else self._requests.total()
                whose = " of yours" if own else ""
                text = f"{held} requests{whose} are being served or waiting: try again later"
                raise RequestRefused(429, text, _RETRY)

    def add(self, caller: str, requests: int, size: int) -> None:
        for counts, more in ((self._requests, requests), (self._bytes, size)):
            counts[caller] += more
            if not counts[caller]:
                del counts[caller]


def _share(most: int) -> int:
    """Return three quarters, rounded up."""
    return most - most // 4


class _Place:
    """The share of the limits that one request holds, until the end of the `with` block at the latest."""

    def __init__(self, held: _Held, caller: str):
        self._held = held
        self._caller = caller
        self._requests = self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def check(self) -> None:
        """Raise RequestRefused if there is no room for a further request."""
        self._held.check(self._caller, 1, 1)

    def hold(self, size: int) -> None:
        """Count bytes that have arrived. Raises RequestRefused."""
        self._add(0, size)

    def take(self) -> None:
        """Count the request. Raises RequestRefused."""
        self._add(1, 0)

    def free(self) -> None:
        self._held.add(self._caller, -self._requests, -self._bytes)
        self._requests = self._bytes = 0

    def _add(self, requests: int, size: int) -> None:
        self._held.check(self._caller, requests, size)
        self._held.add(self._caller, requests, size)
        self._requests += requests
        self._bytes += size


class _Answer:
    """A `send` that frees the place as soon as the whole answer is written."""

    def __init__(self, send: Send, place: _Place, writing: Writing | None):
        self.ended = False
        """True once the last part was sent, whether or not it is written."""
        self._send = send
        self._place = place
        self._writing = writing

    async def __call__(self, event: Event) -> None:
        await self._send(event)
        if event["type"] == "http.response.body" and not event.get("more_body", False):
            self.ended = True
            # Freed at once, because the caller may send its next request as soon as it has the last part.
            if self._writing is None or not self._writing.write_paused:
                self._place.free()


class _Once:
    """A `receive` that returns a body that was already read, then the further events."""

    def __init__(self, body: bytes, receive: Receive):
        self._events: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]
        self._receive = receive

    async def __call__(self) -> Event:
        return self._events.pop() if self._events else await self._receive()


async def _while_connected(serve: Callable[[], Coroutine[Any, Any, None]], receive: Receive) -> None:
    """Serve a request. If the caller disconnects, cancel that, wait for its end and raise HungUp.

    Nothing is begun for a caller that has hung up already.
    """
    gone = asyncio.ensure_future(_hang_up(receive))
    tasks = [gone]
    try:
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        if gone.done():
            raise HungUp
        work = asyncio.ensure_future(serve())
        tasks.append(work)
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise HungUp
        work.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
