"""The connection to a Ray cluster: its address, its nodes, and errors in one line."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from tirjudge.console_text import first_line

_SECONDS = 5.0
"""Time that an address has to answer."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The start of an HTTP/2 connection (RFC 9113, Section 3.4), which Ray's gRPC is: a preface and settings."""
_FRAME, _SETTINGS = 9, b"\4"
"""Bytes of a frame's header, and the fourth byte in the settings with which a server has to answer."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that can run workers."""

    id: str
    name: str
    """Its address and the start of its id, since several nodes may share an address."""
    gpus: int


def connect(address: str | None) -> Any:
    """Connect to the cluster and return the module `ray`.

    `address` is HOST:PORT, `auto` for the cluster that this machine belongs to, or None: RAY_ADDRESS, else
    that cluster, else a cluster of this machine alone, which ends with the run. Raises ValueError, in one
    line, if there is no such cluster, or if it has another version of Ray or Python.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise ValueError("--runner ray needs an extra: pip install 'tirjudge[ray]'") from None
    place = address or os.environ.get("RAY_ADDRESS", "")
    _check(place)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A GPU that no worker reserved stays visible to none of them; Ray warns of a change of this default.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level="error")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        about = f"--address {place}" if place else "--runner ray"
        text = " ".join(str(error).split())
        reason = text if text.startswith("Version mismatch") else first_line(error)
        raise ValueError(f"{about}: {reason}") from None
    _silence()
    return ray


def nodes(ray: Any) -> list[Node]:
    """Return the living nodes with a CPU, in the order of their ids; a head with `--num-cpus 0` has none."""
    found = [
        Node(
            id=one["NodeID"],
            name=f"{one['NodeManagerAddress']} ({one['NodeID'][:8]})",
            gpus=int(one["Resources"].get("GPU", 0)),
        )
        for one in ray.nodes()
        if one["Alive"] and one["Resources"].get("CPU", 0) > 0
    ]
    return sorted(found, key=lambda node: node.id)


def _check(address: str) -> None:
    """Raise ValueError for an address that cannot be meant or reached; Ray itself would try for minutes."""
    if not address or address in ("auto", "local"):
        return
    if "://" in address:
        raise ValueError(
            f"--address {address}: give HOST:PORT of the cluster, on a machine that belongs to it; "
            "Ray's client protocol is not supported"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--address {address}: write HOST:PORT, or auto for the cluster of this machine")
    try:
        with socket.create_connection((host, int(port)), _SECONDS) as connection:
            connection.sendall(_GREETING)
            answer = connection.recv(_FRAME)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
    else:
        if answer[3:4] == _SETTINGS:
            return
        why = "another server does"
    raise ValueError(
        f"--address {address}: no Ray cluster answers there ({why}); `ray start --head` starts one"
    )


def _silence() -> None:
    """Keep Ray from printing the log of a lost node: the run reports it in one line of its own."""
    from ray._private import worker

    # Ray has no option for it, and prints it to standard output, where results and summaries go.
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None
