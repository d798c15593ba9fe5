"""`tirjudge sandbox serve`: the sandbox over HTTP, compatible with SandboxFusion's clients."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tirjudge.cli.listening import (
    GRACE,
    AllowHost,
    Grace,
    Host,
    MaxBody,
    PerCaller,
    Port,
    Queue,
    intake_limits,
    open_listening,
    read_access,
    token_file_option,
    url_of,
)
from tirjudge.cli.output import NO_SANDBOX, USAGE, examples, say, stop
from tirjudge_sandbox import Isolation, SandboxUnavailable, open_sandbox
from tirjudge_sandbox.base import MIB
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.lifetime import serve as serve_sandbox
from tirjudge_sandbox.server.settings import MOST, ServerSettings
from tirjudge_sandbox.workers.pool import PooledSandbox

TOKEN = "TIRJUDGE_SANDBOX_TOKEN"


@examples(
    "tirjudge sandbox serve",
    "tirjudge sandbox serve --backend docker --capacity 8 --notebooks 2",
)
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Sandbox: local, docker, or another that is installed.",
            rich_help_panel="Sandbox",
        ),
    ] = "local",
    capacity: Annotated[
        int | None,
        typer.Option(min=1, help="Programs at once.  [default: one per CPU]", rich_help_panel="Sandbox"),
    ] = None,
    notebooks: Annotated[
        int,
        typer.Option(
            min=0,
            help="Notebooks at once, for /run_jupyter.  [default: none]",
            show_default=False,
            rich_help_panel="Sandbox",
        ),
    ] = 0,
    token_file: Annotated[Path | None, token_file_option(TOKEN)] = None,
    allow_host: AllowHost = None,
    queue: Queue = 256,
    per_caller: PerCaller = None,
    max_seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Longest time that a request may ask for.", rich_help_panel="Sandbox"),
    ] = MOST.wall_seconds,
    max_memory: Annotated[
        int,
        typer.Option(
            min=1, metavar="MIB", help="Most memory that a request may ask for.", rich_help_panel="Sandbox"
        ),
    ] = MOST.memory_bytes // MIB,
    max_body: MaxBody = 16,
    grace: Grace = GRACE,
    allow_weak_isolation: Annotated[
        bool,
        typer.Option(
            "--allow-weak-isolation",
            help="Serve even where programs cannot be isolated fully.",
            rich_help_panel="Sandbox",
        ),
    ] = False,
) -> None:
    """Serve the sandbox over HTTP: SandboxFusion's /run_code and /run_jupyter, /v1/run, and /metrics.

    SIGTERM or Ctrl-C finishes accepted requests within --grace; Ctrl-C again ends at once. Exit code 125 when
    there is no sandbox here, 2 for wrong usage and for an address that is not available.
    """
    settings = ServerSettings(
        access=_access(token_file, allow_host),
        intake=intake_limits(queue, max_body, per_caller, grace),
        most=replace(MOST, wall_seconds=max_seconds, cpu_seconds=max_seconds, memory_bytes=max_memory * MIB),
    )
    try:
        listening = open_listening(host, port, settings.access, TOKEN)
    except ValueError as error:
        stop("sandbox", error, USAGE)
    with listening:
        try:
            asyncio.run(_serving(backend, capacity, notebooks, allow_weak_isolation, listening, settings))
        except ValueError as error:
            stop("sandbox", error, USAGE)
        except SandboxUnavailable as error:
            stop("sandbox", error, NO_SANDBOX)


async def _serving(
    backend: str,
    capacity: int | None,
    notebooks: int,
    allow_weak: bool,
    listening: socket.socket,
    settings: ServerSettings,
) -> None:
    options = {"allow_weak_isolation": allow_weak}
    async with AsyncExitStack() as stack:
        box = open_sandbox(backend, capacity=capacity, **options)
        if isinstance(box, PooledSandbox):
            # Otherwise a caller could have the workers replaced all the time, by ever other sizes.
            box.share_folders(settings.most.disk_bytes)
        await stack.enter_async_context(box)
        kernels: Any = None
        if notebooks:
            kernels = open_sandbox("jupyter", inside=backend, capacity=notebooks, **options)
            await stack.enter_async_context(kernels)

        def started(isolation: Isolation) -> None:
            weak = f", WITHOUT {', '.join(isolation.missing)}" if isolation.missing else ""
            where = f"{url_of(listening)} runs {box.capacity} programs at once in `{isolation.placement}`"
            say(f"tirjudge sandbox: {where}{weak}")

        await serve_sandbox(box, listening, settings, started, kernels)
    say("tirjudge sandbox: ended")


def _access(file: Path | None, hosts: list[str] | None) -> Access:
    try:
        return read_access(TOKEN, file, hosts)
    except ValueError as error:
        stop("sandbox", error, USAGE)
