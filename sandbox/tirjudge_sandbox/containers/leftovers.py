"""Containers that nobody uses any more: a dead process's, and those a sandbox could not remove before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from tirjudge_sandbox.containers.owner import LABEL, Owner

SANDBOX = "tirjudge.sandbox.id"
"""Label of every container; tells the sandboxes of one process apart."""


def remove_orphans(client: Any) -> None:
    """Remove the containers of processes that are surely dead. Raises docker's errors."""
    _remove(client, LABEL, lambda labels: Owner.of(labels).dead)


def remove_all(client: Any, sandbox: str) -> None:
    """Remove every container of one sandbox. Raises docker's errors."""
    _remove(client, f"{SANDBOX}={sandbox}", lambda _: True)


def _remove(client: Any, label: str, unused: Callable[[Mapping[str, str]], bool]) -> None:
    from docker.errors import APIError

    # Not `containers.list`, which asks for each one's details and fails for one that goes meanwhile.
    for found in client.api.containers(all=True, filters={"label": label}):
        if unused(found["Labels"]):
            # Another process may be removing it too.
            with contextlib.suppress(APIError):
                client.api.remove_container(found["Id"], force=True)
