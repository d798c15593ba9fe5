"""Containers whose trainer died without removing them."""

from __future__ import annotations

import contextlib
from typing import Any

from tirjudge_sandbox.containers.owner import LABEL, Owner


def remove(client: Any) -> list[str]:
    """Remove the containers of dead owners, and no other; their ids. Raises docker's errors."""
    from docker.errors import APIError

    removed = []
    # Not `containers.list`, which asks for each one's details and fails for one that goes meanwhile.
    for found in client.api.containers(all=True, filters={"label": LABEL}):
        # Labels that are not whole are not ours.
        with contextlib.suppress(KeyError):
            if Owner.of(found["Labels"]).dead:
                # It may be going by itself, or by another trainer's hand.
                with contextlib.suppress(APIError):
                    client.api.remove_container(found["Id"], force=True)
                    removed.append(found["Id"])
    return removed
