"""Serve ASGI applications on loopback, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext

import uvicorn
from anyio.from_thread import start_blocking_portal
from starlette.applications import Starlette
from starlette.routing import Route

from tirjudge_sandbox.server.connections import ConnectionLimits
from tirjudge_sandbox.server.guard import Access, App
from tirjudge_sandbox.server.lifetime import bounded_server, listen


@contextmanager
def loopback(
    opened: AbstractAsyncContextManager[App],
    port: int = 0,
    *,
    patient: bool = True,
    limits: ConnectionLimits | None = None,
) -> Iterator[str]:
    """Serve the ASGI application that `opened` yields and yield the URL; the server stops first.

    With `patient`, the server finishes accepted requests before it stops. `limits`: those of the product's
    servers; None means a server without any.
    """
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_listening(opened, port, patient, limits)) as url,
    ):
        yield url


@contextmanager
def served(*routes: Route) -> Iterator[str]:
    """Serve an application with these routes and yield its URL."""
    with loopback(nullcontext(Starlette(routes=routes)), patient=False) as url:
        yield url


@asynccontextmanager
async def _listening(
    opened: AbstractAsyncContextManager[App], port: int, patient: bool, limits: ConnectionLimits | None
) -> AsyncIterator[str]:
    async with opened as app:
        if limits is None:
            server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="none"))
        else:
            server = bounded_server(app, limits)
        with listen("127.0.0.1", port, Access()) as listening:
            serving = asyncio.create_task(server.serve([listening]))
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit, server.force_exit = True, not patient
                await serving
