"""`tirjudge mcp`: the sandbox and the judge as an agent's tools."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError

from tirjudge import __version__
from tirjudge.cli.listening import AllowHost, open_listening, url_of
from tirjudge.cli.one_line import USAGE, say, stop
from tirjudge.cli.standard_output import UNREAD
from tirjudge.cli.token import read_token, token_file_option
from tirjudge.mcp.running import ReturnMode
from tirjudge.mcp.server import PATH, create_server, http_app
from tirjudge.mcp.verdicts import Verdicts
from tirjudge_environments.registry import first_fault
from tirjudge_sandbox import Limits, SandboxUnavailable, open_sandbox
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.lifetime import serve_app

NO_SANDBOX = 125
TOKEN = "TIRJUDGE_MCP_TOKEN"


def mcp(
    transport: Annotated[
        Literal["stdio", "http"], typer.Option(help="Standard input and output, or streamable HTTP.")
    ] = "stdio",
    host: Annotated[
        str, typer.Option(help="For http. Any address but loopback needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="For http; 0 takes a free one.")] = 8081,
    token_file: Annotated[Path | None, token_file_option(TOKEN)] = None,
    allow_host: AllowHost = None,
    backend: Annotated[
        str, typer.Option(metavar="NAME", help="Which sandbox runs an agent's code, and the judge's.")
    ] = "local",
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Wall and CPU time of an agent's code.")
    ] = 20.0,
    return_mode: Annotated[ReturnMode, typer.Option(help="How its outcome is written.")] = "xml",
    model: Annotated[
        str, typer.Option(help="The judge: folder, hub id, or an endpoint's name for it. Default: embedded.")
    ] = "",
    base_url: Annotated[str, typer.Option(help="An OpenAI-compatible endpoint of the judge's.")] = "",
) -> None:
    """Serve an agent's tools over the Model Context Protocol.

    They are `run_python_code` and `judge`. Exit code 125 when there is no sandbox here or the extra `mcp` is
    missing, 2 for wrong usage and for an address that cannot be had.
    """
    try:
        access = Access(token=read_token(TOKEN, token_file), hosts=tuple(allow_host or ()))
        over_http = transport == "http"
        listening = open_listening(host, port, access, TOKEN) if over_http else None
        settings = {"backend": backend, "mode": return_mode}
        limits = Limits(wall_seconds=timeout, cpu_seconds=timeout)
        asyncio.run(_serving(Verdicts(model, base_url, backend=backend), limits, settings, listening, access))
    except ValidationError as error:
        stop("mcp", first_fault(error), USAGE)
    except ValueError as error:
        stop("mcp", error, USAGE)
    except SandboxUnavailable as error:
        stop("mcp", error, NO_SANDBOX)


async def _serving(
    verdicts: Verdicts,
    limits: Limits,
    settings: Mapping[str, Any],
    listening: socket.socket | None,
    access: Access,
) -> None:
    async with AsyncExitStack() as stack:
        box = await stack.enter_async_context(open_sandbox(settings["backend"]))
        await stack.enter_async_context(verdicts)
        server = create_server(box, verdicts, version=__version__, limits=limits, mode=settings["mode"])
        if listening is None:
            await _until_unread(server.run_stdio_async())
            return
        stack.enter_context(listening)
        intake = IntakeLimits()
        url = url_of(listening)
        await serve_app(
            http_app(server, access, intake),
            listening,
            intake.requests,
            lambda: say(f"tirjudge mcp: {url}{PATH}"),
            lifespan="on",
        )


async def _until_unread(serving: Awaitable[None]) -> None:
    """The SDK writes to a descriptor of its own: what watches standard output does not see its pipe break."""
    unread = False
    try:
        await serving
    except* BrokenPipeError:
        unread = True
    if unread:
        raise SystemExit(UNREAD)
