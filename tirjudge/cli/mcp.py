"""`tirjudge mcp`: the sandbox and the judge as tools of an agent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Literal

from tirjudge import __version__
from tirjudge.cli.listening import (
    AllowHost,
    Host,
    Port,
    open_listening,
    read_access,
    token_file_option,
    url_of,
)
from tirjudge.cli.options import takes_options
from tirjudge.cli.output import UNREAD, examples, no_sandbox, option, say
from tirjudge.judge import Judge
from tirjudge.judging.options import OF_RUNS, JudgeOptions
from tirjudge.mcp.run_python import MOST_CHARACTERS, ReturnMode
from tirjudge.mcp.server import INTAKE, PATH, create_server, http_app, serve_stdio
from tirjudge_sandbox import Limits, SandboxUnavailable, open_sandbox
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.lifetime import serve_app

TOKEN = "TIRJUDGE_MCP_TOKEN"


@examples(
    "tirjudge mcp", "tirjudge mcp --transport http --model Qwen/Qwen3-8B --base-url http://localhost:8000/v1"
)
@takes_options("mcp", without=OF_RUNS)
def mcp(
    transport: Annotated[
        Literal["stdio", "http"], option("Server", "Standard input and output, or streamable HTTP.")
    ] = "stdio",
    host: Host = "127.0.0.1",
    port: Port = 8081,
    token_file: Annotated[Path | None, token_file_option(TOKEN)] = None,
    allow_host: AllowHost = None,
    code_timeout: Annotated[
        float,
        option("Sandbox", "Wall and CPU time of an agent's code.", min=0.1, max=86_400, metavar="SECONDS"),
    ] = 20.0,
    return_mode: Annotated[ReturnMode, option("Output", "Format of the outcome of an agent's code.")] = "xml",
    max_characters: Annotated[
        int,
        option(
            "Output",
            "Size of an answer; longer outputs are cut in the middle. Agents read about 25,000 tokens.",
            min=1000,
            metavar="N",
        ),
    ] = MOST_CHARACTERS,
    *,
    options: JudgeOptions,
) -> None:
    """Serve the tools `run_python_code` and `judge` over the Model Context Protocol.

    Exit code 125 when there is no sandbox here, 2 for wrong usage, for a missing extra and for an address
    that is not available.
    """
    access = read_access(TOKEN, token_file, allow_host)
    listening = open_listening(host, port, access, TOKEN) if transport == "http" else None
    limits = Limits(wall_seconds=code_timeout, cpu_seconds=code_timeout)
    try:
        asyncio.run(_serving(options, limits, return_mode, max_characters, listening, access))
    except SandboxUnavailable as error:
        no_sandbox("mcp", error)


async def _serving(
    options: JudgeOptions,
    limits: Limits,
    return_mode: ReturnMode,
    most: int,
    listening: socket.socket | None,
    access: Access,
) -> None:
    judge = Judge(**options.model_dump(exclude_unset=True))
    async with AsyncExitStack() as stack:
        # The agent's programs get neither the judge's import policy nor what `prepare` defines.
        weak = {"allow_weak_isolation": True} if options.allow_weak_isolation else {}
        box = open_sandbox(options.backend, **options.backend_options, **weak)
        await stack.enter_async_context(box)
        stack.push_async_callback(asyncio.to_thread, judge.close)
        server = create_server(box, judge, version=__version__, limits=limits, mode=return_mode, most=most)
        if listening is None:
            await _until_unread(serve_stdio(server))
            return
        stack.enter_context(listening)
        url = url_of(listening)
        await serve_app(
            http_app(server, access, INTAKE),
            listening,
            INTAKE.connections,
            lambda: say(f"tirjudge mcp: {url}{PATH}"),
            lifespan="on",
        )


async def _until_unread(serving: Awaitable[None]) -> None:
    """Serve until the agent is gone.

    The SDK writes to a descriptor of its own, so the watched standard output does not see the broken pipe.
    """
    unread = False
    try:
        await serving
    except* BrokenPipeError:
        unread = True
    if unread:
        raise SystemExit(UNREAD)
