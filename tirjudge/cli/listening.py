"""Where a server of ours listens, for whom, and for how much at once: the options that they share."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from tirjudge_sandbox.base import MIB
from tirjudge_sandbox.server.guard import Access
from tirjudge_sandbox.server.intake import IntakeLimits
from tirjudge_sandbox.server.lifetime import listen

Host = Annotated[str, typer.Option(help="Address to listen on. Any but loopback needs a token.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A name that callers use, beside addresses and localhost. Repeatable."),
]
Queue = Annotated[int, typer.Option(min=1, help="Requests served and waiting, before 429.")]
MaxBody = Annotated[int, typer.Option(min=1, metavar="MIB", help="The largest request.")]


def intake_limits(queue: int, max_body: int) -> IntakeLimits:
    """Of `Queue` and `MaxBody`; two of the largest requests always find room."""
    return IntakeLimits(requests=queue, body_bytes=max_body * MIB, held_bytes=max(256, 2 * max_body) * MIB)


def open_listening(host: str, port: int, access: Access, token: str) -> socket.socket:
    """As `listen`; `token` is the variable that would hold one. Raises ValueError, in one line."""
    try:
        return listen(host, port, access)
    except ValueError as error:
        raise ValueError(f"{error}: set {token} or --token-file, or leave --host as it is") from None
    except OSError as error:
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
