"""Bounds on the connections of a server: how many, how slow, and how much waits to be written to them."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import socket
import struct
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

_MIB = 1 << 20
_LOOPBACK = "loopback"
_PREFIX_BITS = 64
WRITING = "tirjudge.writing"
"""The name of an ASGI extension: a `Writing`, the state of what was sent on the request's connection."""


class ConnectionLimits(BaseModel):
    """Limits on the connections of a server, of callers with and without a valid token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connections: PositiveInt = 1256
    """Connections together. At most half of the file descriptors that the process may open are used."""
    address_connections: PositiveInt = 756
    """Connections of one caller address; see `address_of`."""
    header_seconds: PositiveFloat = 10.0
    """Time in which the head of a request must arrive, from the opening of the connection or, for a later
    request, from its first byte."""
    idle_seconds: PositiveInt = 75
    """Time that a connection may be idle between requests: longer than clients keep idle connections, so that
    none is closed just when a client uses it."""
    write_seconds: PositiveFloat = 30.0
    """Time in which a caller must read its answer, plus one second for each MiB of it."""
    unwritten_bytes: PositiveInt = 256 * _MIB
    """Bytes of answers that have begun and are not written yet, of all connections."""
    grace_seconds: PositiveFloat = 25.0
    """Time after SIGTERM in which accepted requests may end. Service managers usually kill after 30 s."""


class Writing(Protocol):
    """The state of the bytes that were sent on a connection, by the names that uvicorn uses."""

    write_paused: bool
    """True while bytes wait because the caller does not read them."""

    async def drain(self) -> None:
        """Wait until no byte waits, or the connection is closed."""


class Connections:
    """The open connections of one server, by caller address.

    A connection on which the server waits for its caller, to send a request or to read an answer, is closed
    to make room for a new one: the longest waiting one of the address that has most. A connection whose
    caller waits for the server is never closed for that.
    """

    def __init__(self, limits: ConnectionLimits):
        self.limits = limits
        self._total = min(limits.connections, _descriptors(2 * limits.connections) // 2)
        self.closing = False
        """True refuses further connections."""
        self._open: dict[str, dict[BoundedConnection, None]] = {}
        self._owing: dict[str, dict[BoundedConnection, None]] = {}
        """The connections on which the server waits for the caller, the longest waiting one first."""

    def __len__(self) -> int:
        return sum(map(len, self._open.values()))

    def add(self, connection: BoundedConnection) -> bool:
        """Accept a new connection, closing another if need be. Return False if there is no room."""
        if self.closing:
            return False
        address = connection.address
        own = len(self._open.get(address, ()))
        if own >= self.limits.address_connections and not self._close_one(address):
            return False
        if len(self) >= self._total:
            greedy_first = sorted(self._open, key=lambda one: len(self._open[one]), reverse=True)
            if not any(map(self._close_one, greedy_first)):
                return False
        self._open.setdefault(address, {})[connection] = None
        return True

    def remove(self, connection: BoundedConnection) -> None:
        """Forget a connection that is closed."""
        for group in (self._open, self._owing):
            members = group.get(connection.address, {})
            members.pop(connection, None)
            if not members:
                group.pop(connection.address, None)

    def update(self, connection: BoundedConnection) -> None:
        """Note whether the server waits for the caller of this connection."""
        if connection not in self._open.get(connection.address, ()):
            return
        owing = self._owing.setdefault(connection.address, {})
        if not connection.owes:
            owing.pop(connection, None)
        else:
            # A connection that is already there keeps its place, since the order is that of waiting.
            owing.setdefault(connection)

    def limit_unwritten(self) -> None:
        """Close connections until the bytes that wait to be written are within the limit.

        The longest unread one of the address with most of these bytes is closed first.
        """
        while True:
            sums = {address: sum(one.unwritten for one in members) for address, members in self._open.items()}
            if sum(sums.values()) <= self.limits.unwritten_bytes:
                return
            # Not the largest one, which may just have been written to a caller that reads.
            unread = (
                one
                for address in sorted(sums, key=sums.__getitem__, reverse=True)
                for one in self._owing.get(address, ())
                if one.unwritten
            )
            if (longest := next(unread, None)) is None:
                return
            self._close(longest)

    def close_all(self) -> None:
        """Close every connection, whatever it is doing."""
        for members in list(self._open.values()):
            for connection in list(members):
                self._close(connection)

    def _close_one(self, address: str) -> bool:
        oldest = next(iter(self._owing.get(address, ())), None)
        if oldest is not None:
            self._close(oldest)
        return oldest is not None

    def _close(self, connection: BoundedConnection) -> None:
        # At once: asyncio reports the lost connection later, and the room is needed now.
        self.remove(connection)
        connection.abort()


class BoundedConnection(Protocol):
    """One connection, as `Connections` sees it."""

    address: str

    @property
    def owes(self) -> bool:
        """True while the server waits for the caller to send or to read."""

    @property
    def unwritten(self) -> int:
        """Bytes of the answer that are not written yet."""

    def abort(self) -> None:
        """Close the connection and drop what waits to be written."""


def protocol_class(connections: Connections) -> type[H11Protocol]:
    """Return uvicorn's protocol of HTTP/1.1 with the limits of `connections`."""
    # Imported here because uvicorn belongs to an extra.
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope
    from uvicorn.protocols.http.h11_impl import H11Protocol

    limits = connections.limits

    class BoundedProtocol(H11Protocol):
        """One connection with deadlines for the head of a request and for reading an answer."""

        address = ""
        _head: asyncio.TimerHandle | None = None
        _write: asyncio.TimerHandle | None = None
        _unsent = 0
        """Bytes of the announced answer that the application has not sent yet."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            # Every byte that the kernel does not take at once counts as waiting.
            transport.set_write_buffer_limits(high=0)
            self.address = address_of(self.client[0] if self.client else "")
            app = self.app

            async def with_writing(
                scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable
            ) -> None:
                async def watched(event: ASGISendEvent) -> None:
                    if event["type"] == "http.response.start":
                        self._unsent = int(dict(event["headers"]).get(b"content-length", 0))
                    elif event["type"] == "http.response.body":
                        left = max(0, self._unsent - len(event["body"]))
                        self._unsent = left if event.get("more_body") else 0
                    await send(event)

                await app({**scope, "extensions": {WRITING: self.flow}}, receive, watched)

            self.app = with_writing
            if connections.add(self):
                self._changed()
            else:
                self.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self)
            self._end_head()
            self._end_write()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._changed()

        def pause_writing(self) -> None:
            super().pause_writing()
            connections.update(self)
            if self._write is None:
                seconds = limits.write_seconds + self.unwritten / _MIB
                self._write = self.loop.call_later(seconds, self.abort)
                connections.limit_unwritten()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._check_written()
            connections.update(self)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._check_written()
            if self.conn.trailing_data[0]:
                # The next request has begun to arrive; otherwise the connection is idle.
                self._changed()
            connections.update(self)

        @property
        def owes(self) -> bool:
            return self._between_requests or self.cycle.more_body or self.flow.write_paused

        @property
        def unwritten(self) -> int:
            return self._unsent + self.transport.get_write_buffer_size()

        def abort(self) -> None:
            connection = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                # The kernel would keep its part of an answer that nobody reads for minutes.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

        @property
        def _between_requests(self) -> bool:
            return self.cycle is None or self.cycle.response_complete

        def _changed(self) -> None:
            if not self._between_requests:
                self._end_head()
            elif self._head is None:
                # Not prolonged by further bytes, so that a caller cannot send one every few seconds.
                self._head = self.loop.call_later(limits.header_seconds, self.abort)
            connections.update(self)

        def _end_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
            self._head = None

        def _check_written(self) -> None:
            # An answer that is sent in parts has one deadline.
            if not self.unwritten:
                self._end_write()

        def _end_write(self) -> None:
            if self._write is not None:
                self._write.cancel()
            self._write = None

    return BoundedProtocol


def address_of(host: str) -> str:
    """Return the name under which the connections of a host are counted.

    All of loopback is one: a process may use any of its addresses. So is an IPv6 network of 64 bits, which a
    host usually has to itself.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return _LOOPBACK
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, _PREFIX_BITS), strict=False).network_address)


def _descriptors(wanted: int) -> int:
    """Return how many file descriptors this process may open, after raising its own limit to `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return wanted if soft == resource.RLIM_INFINITY else soft
