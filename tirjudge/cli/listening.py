"""Options that all servers share: the address, the limits and the token."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import SecretStr

from tirjudge.cli.output import option
from tirjudge_sandbox.base import MIB
from tirjudge_sandbox.server.connections import ConnectionLimits
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.lifetime import listen

Host = Annotated[str, option("Server", "Address to listen on; any but loopback requires a token.")]
Port = Annotated[int, option("Server", "Port; 0 takes a free one.", min=0, max=65535)]
AllowHost = Annotated[
    list[str] | None,
    option(
        "Server",
        "A further host name that clients use, besides addresses and localhost. Repeatable.",
        metavar="NAME",
    ),
]
Queue = Annotated[int, option("Server", "Requests running and waiting; more are refused with 429.", min=1)]
PerCaller = Annotated[
    int | None,
    option(
        "Server", "Requests of one caller, running and waiting.  [default: three quarters of --queue]", min=1
    ),
]
Grace = Annotated[
    float,
    option(
        "Server",
        "Time after SIGTERM in which accepted requests may end; the others are dropped then.",
        min=0.1,
        max=86400,
        metavar="SECONDS",
    ),
]
GRACE = ConnectionLimits().grace_seconds
MaxBody = Annotated[int, option("Server", "Size of the largest request.", min=1, metavar="MIB")]
_SHORTEST_TOKEN = 16


def intake_limits(queue: int, max_body: int, per_caller: int | None, grace: float) -> IntakeLimits:
    """Return the limits for these options; two of the largest requests always fit."""
    return IntakeLimits(
        # Idle connections, and those that are answered with 429, come on top of the requests that are held.
        connections=ConnectionLimits(
            connections=queue + 1000, address_connections=queue + 500, grace_seconds=grace
        ),
        requests=queue,
        caller_requests=per_caller,
        body_bytes=max_body * MIB,
        held_bytes=max(256, 2 * max_body) * MIB,
    )


def open_listening(host: str, port: int, access: Access, token: str) -> socket.socket:
    """Return a listening socket; `token` is the environment variable named in the error.

    Raises ValueError, in one line, for an address that is taken or that would need a token.
    """
    try:
        return listen(host, port, access)
    except ValueError as error:
        raise ValueError(f"{error}: set {token} or --token-file, or keep the default --host") from None
    except OSError as error:
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def token_file_option(variable: str) -> Any:
    """Return the option for the token's file; `variable` may hold the token instead.

    There is no option for the token itself: every user of the machine can see arguments.
    """
    about = f"File with the token, or with one per caller and line.  [default: the variable {variable}]"
    return option("Server", about, metavar="FILE")


def read_access(
    variable: str, file: Path | None, hosts: Sequence[str] | None, open_paths: Collection[str] = ()
) -> Access:
    """Return the access with the tokens of the file, or else with that of the variable, or without any.

    Raises ValueError for a bad token.
    """
    source, text = variable, os.environ.get(variable)
    if file is not None:
        source = str(file)
        try:
            text = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ValueError(f"--token-file {file}: {reason}") from None
    tokens = [] if text is None else [text] if file is None else text.splitlines() or [""]
    for token in tokens:
        if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(
                f"the token in {source} must be at least {_SHORTEST_TOKEN} printable ASCII characters"
            )
    if len(set(tokens)) < len(tokens):
        raise ValueError(f"--token-file {file}: two callers have the same token")
    paths = {"open_paths": frozenset(open_paths)} if open_paths else {}
    secrets = [SecretStr(token) for token in tokens]
    return Access(
        token=next(iter(secrets), None), further_tokens=tuple(secrets[1:]), hosts=tuple(hosts or ()), **paths
    )
