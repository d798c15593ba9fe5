"""Access control of a server, and the parts of the ASGI interface that its middleware needs.

A token is checked, and pages in a browser are kept out, which can reach loopback too.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr

from tirjudge_sandbox.server.connections import address_of

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Who sent the request that is being served, by its token or address; see `Guard`. Contains no slash."""

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""The owner of what a request stores, and may read: with several tokens the caller, and else empty.

With one token the hosts of a job share what the server keeps."""

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::\d{1,5})?")
_JSON = "application/json"
_KEYS = ("api-key", "x-api-key")
"""The headers in which clients of Azure and of Anthropic send a token."""
_GUESSES, _GUESS_SECONDS = 20, 1.0
"""Number of wrong tokens, of all callers together, within so many seconds; further ones wait as long."""


class RequestRefused(Exception):
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


class Access(BaseModel):
    """The conditions under which a request is accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: SecretStr | None = None
    """Sent as a bearer token, as the password of basic authentication (`http://:TOKEN@host`), or in a header
    `api-key` or `x-api-key`. None: no token."""
    further_tokens: tuple[SecretStr, ...] = ()
    """Tokens of further callers. With several tokens each is one caller; with one or none each address is."""
    hosts: tuple[str, ...] = ()
    """Host names that requests may use, in addition to `localhost` and any IP address.

    Other names are refused because of DNS rebinding: a page whose own name was made to point to this server
    sends that name.
    """
    open_paths: frozenset[str] = frozenset({"/v1/ping"})
    """Paths that are served without a token."""


class Guard:
    """ASGI middleware that enforces `Access`, for any application that takes JSON, and sets `CALLER`."""

    def __init__(self, app: App, access: Access):
        self._app = app
        self._hosts = {name.lower() for name in access.hosts} | {"localhost"}
        tokens = (*filter(None, [access.token]), *access.further_tokens)
        self._tokens = [token.get_secret_value().encode() for token in tokens]
        self._open_paths = access.open_paths
        self._wrong_tokens: deque[float] = deque(maxlen=_GUESSES)
        """Times of the last requests with a wrong token."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # WebSockets are ignored; `lifespan` is the start and stop of the server itself.
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        try:
            caller = self._check(scope)
        except RequestRefused as refused:
            if refused.status == HTTPStatus.UNAUTHORIZED and self._is_guessing():
                await asyncio.sleep(_GUESS_SECONDS)
            await refused.send(send)
        else:
            CALLER.set(caller)
            OWNER.set(caller if len(self._tokens) > 1 else "")
            await self._app(scope, receive, send)

    def _is_guessing(self) -> bool:
        full = len(self._wrong_tokens) == _GUESSES
        return full and time.monotonic() - self._wrong_tokens[0] < _GUESS_SECONDS

    def _check(self, scope: Scope) -> str:
        """Return the caller's name. Raises RequestRefused."""
        hosts, origins = header_values(scope, "host"), header_values(scope, "origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise _refused(
                403, "this server does not accept that host name: allow it when starting the server"
            )
        if any(origin.partition("://")[2] != hosts[0] for origin in origins):
            raise _refused(403, "requests from other origins are refused")
        caller = address_of(scope["client"][0]) if scope.get("client") else ""
        if self._tokens and scope["path"] not in self._open_paths:
            given = [_token(value) for value in header_values(scope, "authorization")] or [
                key.encode("latin-1") for name in _KEYS for key in header_values(scope, name)
            ]
            # All are compared, so that the time says nothing about which one is close.
            equal = [hmac.compare_digest(given[0], token) for token in self._tokens if len(given) == 1]
            if not any(equal):
                self._wrong_tokens.append(time.monotonic())
                raise _refused(401, "a valid token is needed", {"www-authenticate": "Bearer"})
            if len(self._tokens) > 1:
                caller = f"token {equal.index(True)}"
        # A page can send other content types to another origin without the browser asking first (CORS).
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kinds = header_values(scope, "content-type")
            if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != _JSON:
                raise _refused(415, f"the content type must be {_JSON}")
        return caller

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        return match is not None and (match[1].lower() in self._hosts or _is_address(match[1]))


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback


def _refused(status: int, detail: str, headers: Mapping[str, str] | None = None) -> RequestRefused:
    # Closed, so that nothing more is read from a caller without access.
    return RequestRefused(status, detail, {"connection": "close", **(headers or {})})


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _token(authorization: str) -> bytes:
    """Return the token of an Authorization header; empty, which is never valid, if it is malformed."""
    scheme, _, value = authorization.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value.encode("latin-1")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""
