"""The lifetime of a server: listen, serve, and on a signal finish every accepted request before it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from tirjudge_sandbox import __version__
from tirjudge_sandbox.base import Isolation, Program, Sandbox, SandboxUnavailable, Status
from tirjudge_sandbox.server.app import create_app
from tirjudge_sandbox.server.connections import ConnectionLimits, Connections, protocol_class
from tirjudge_sandbox.server.guard import Access, App, is_loopback
from tirjudge_sandbox.server.settings import ServerSettings

if TYPE_CHECKING:
    import uvicorn

_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 16
"""Connections that are opened before others can be closed for them: they must not use up all descriptors."""
_MORE_SECONDS = 10
"""Time after the grace in which programs whose callers were dropped are killed."""


def listen(host: str, port: int, access: Access) -> socket.socket:
    """Return a listening socket for `serve`. `port`: 0 means any free one.

    Raises ValueError for an address that other machines can reach when there is no token, and OSError if the
    address cannot be used.
    """
    if access.token is None and not is_loopback(host):
        raise ValueError(f"{host} can be reached from other machines: that needs a token")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    # Connections inherit this option. asyncio sets it only on sockets made with IPPROTO_TCP, and without it
    # the end of an answer waits for the client's delayed acknowledgement (40 ms).
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def serve(
    box: Sandbox, listening: socket.socket, settings: ServerSettings, started: Callable[[Isolation], None]
) -> None:
    """Serve an open sandbox until SIGTERM or SIGINT, then finish accepted requests.

    Requests that take longer than the grace of `ConnectionLimits` are dropped. A second SIGINT stops at once.
    `started` is called with the isolation of the programs once requests are served. Must be called in the
    main thread. Raises SandboxUnavailable if no program can run or the extra `serve` is not installed.
    """
    tried = await box.run(Program(source=""))
    if tried.status is not Status.OK or tried.isolation is None:
        raise SandboxUnavailable(tried.detail or f"an empty program ended with {tried.status}")
    app = create_app(box, settings, version=__version__, isolation=tried.isolation)
    isolation = tried.isolation
    await serve_app(app, listening, settings.intake.connections, lambda: started(isolation))


async def serve_app(
    app: App,
    listening: socket.socket,
    limits: ConnectionLimits,
    started: Callable[[], None],
    *,
    lifespan: Literal["on", "off"] = "off",
) -> None:
    """Serve an application as `serve` does. `lifespan`: `on` if the application handles ASGI's lifespan."""
    server = bounded_server(app, limits, lifespan=lifespan)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn catches the signals while it serves, and raises them again when it has ended. They must not
        # end the process then, because the sandbox is not closed yet. Earlier signals end the server as well.
        signal.signal(number, server.handle_exit)
    started()
    await server.serve(sockets=[listening])


def bounded_server(
    app: App, limits: ConnectionLimits, *, lifespan: Literal["on", "off"] = "off"
) -> uvicorn.Server:
    """Return uvicorn's server of an application, with limits on its connections and on its shutdown."""
    # Imported here because it belongs to an extra.
    import uvicorn

    connections = Connections(limits)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for listening in sockets or ():
                # The kernel's queue is longer than what asyncio accepts at once.
                listening.listen(_BACKLOG)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Connections that were accepted just before may not have been made yet.
            connections.closing = True
            # Its own timeout would cancel the tasks of requests, which answer then with an error 500.
            loop = asyncio.get_running_loop()
            grace = loop.call_later(limits.grace_seconds, connections.close_all)
            await super().shutdown(sockets)
            grace.cancel()

    return Server(
        uvicorn.Config(
            app,
            # The faster httptools bounds neither the number of headers nor their size, and no protocol of
            # uvicorn bounds the time in which they arrive.
            http=protocol_class(connections),
            lifespan=lifespan,
            ws="none",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_ACCEPTED_AT_ONCE,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=int(limits.grace_seconds) + _MORE_SECONDS,
        )
    )
