"""The lifetime of a server: listen, serve, and on a signal finish every accepted request before it ends."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from importlib.metadata import version
from typing import Literal

from tirjudge_sandbox.base import Isolation, Program, Sandbox, SandboxUnavailable, Status
from tirjudge_sandbox.server.app import create_app
from tirjudge_sandbox.server.asgi import App
from tirjudge_sandbox.server.guard import Access, is_loopback
from tirjudge_sandbox.server.notebooks import Notebooks
from tirjudge_sandbox.server.settings import ServerSettings

_KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that none is closed just when a client uses it."""
_MORE_CONNECTIONS = 1000
"""Connections beyond the requests that are held: idle ones, and those that are answered with 429."""
_BACKLOG = 1024


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
    box: Sandbox,
    listening: socket.socket,
    settings: ServerSettings,
    started: Callable[[Isolation], None],
    notebooks: Notebooks | None = None,
) -> None:
    """Serve an open sandbox until SIGTERM or SIGINT, then finish accepted requests.

    A second signal stops at once. `started` is called with the isolation of the programs once requests are
    served. Must be called in the main thread. Raises SandboxUnavailable if no program can run or the extra
    `serve` is not installed.
    """
    tried = await box.run(Program(source=""))
    if tried.status is not Status.OK or tried.isolation is None:
        raise SandboxUnavailable(tried.detail or f"an empty program ended with {tried.status}")
    app = create_app(
        box, settings, version=version("tirjudge"), isolation=tried.isolation, notebooks=notebooks
    )
    isolation = tried.isolation
    await serve_app(app, listening, settings.intake.requests, lambda: started(isolation))


async def serve_app(
    app: App,
    listening: socket.socket,
    requests: int,
    started: Callable[[], None],
    *,
    lifespan: Literal["on", "off"] = "off",
) -> None:
    """Serve an application as `serve` does.

    `requests`: the most that it holds at once. `lifespan`: `on` if the application handles ASGI's lifespan.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        # The faster httptools bounds neither the number of headers nor their size.
        http="h11",
        lifespan=lifespan,
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=requests + _MORE_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn catches the signals while it serves, and raises them again when it has ended. They must not
        # end the process then, because the sandbox is not closed yet.
        signal.signal(number, lambda *_: None)
    started()
    await uvicorn.Server(config).serve(sockets=[listening])
