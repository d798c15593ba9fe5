"""Options that all servers share: the address, the limits and the token."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from tirjudge_sandbox.base import MIB
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.lifetime import listen

Host = Annotated[
    str,
    typer.Option(help="Address to listen on; any but loopback requires a token.", rich_help_panel="Server"),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.", rich_help_panel="Server")
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A further host name that clients use, besides addresses and localhost. Repeatable.",
        rich_help_panel="Server",
    ),
]
Queue = Annotated[
    int,
    typer.Option(
        min=1, help="Requests running and waiting; more are refused with 429.", rich_help_panel="Server"
    ),
]
MaxBody = Annotated[
    int,
    typer.Option(min=1, metavar="MIB", help="Size of the largest request.", rich_help_panel="Server"),
]
_SHORTEST_TOKEN = 16


def intake_limits(queue: int, max_body: int) -> IntakeLimits:
    """Return the limits for `Queue` and `MaxBody`; two of the largest requests always fit."""
    return IntakeLimits(requests=queue, body_bytes=max_body * MIB, held_bytes=max(256, 2 * max_body) * MIB)


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
    return typer.Option(
        metavar="FILE",
        help=f"File with the token.  [default: the variable {variable}]",
        rich_help_panel="Server",
    )


def read_token(variable: str, file: Path | None) -> SecretStr | None:
    """Return the token of the file, or else of the variable, or None. Raises ValueError for a bad one."""
    source, token = variable, os.environ.get(variable)
    if file is not None:
        source = str(file)
        try:
            token = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise ValueError(f"--token-file {file}: {reason}") from None
    if token is None:
        return None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"the token in {source} must be at least {_SHORTEST_TOKEN} printable ASCII characters"
        )
    return SecretStr(token)
