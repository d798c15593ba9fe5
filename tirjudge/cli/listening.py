"""Where a server of ours listens: its socket and its address, with a line for whoever typed a wrong one."""

from __future__ import annotations

import socket

from tirjudge_sandbox.server.lifetime import listen
from tirjudge_sandbox.server.settings import ServerSettings


def open_listening(host: str, port: int, settings: ServerSettings, token: str) -> socket.socket:
    """As `listen`; `token` is the variable that would hold one. Raises ValueError, in one line."""
    try:
        return listen(host, port, settings)
    except ValueError as error:
        raise ValueError(f"{error}: set {token} or --token-file, or leave --host as it is") from None
    except OSError as error:
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
