"""Where a worker can be put on this machine, and what holds there."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tirjudge_sandbox.base import Isolation
from tirjudge_sandbox.guest.settings import OWN_UID, PLAIN, ROOT, USERNS

ALL = (ROOT, USERNS, OWN_UID, PLAIN)
"""Every placement on a machine, the best first."""

_WHY = {
    "host_files_hidden": "files of the host can be opened",
    "network_cut": "programs can open sockets",
    "processes_contained": "programs can reach other processes, start too many or leave some behind",
    "calls_filtered": "the kernel takes no system call filter",
}


def candidates() -> tuple[str, ...]:
    """Those of `ALL` that this process may try."""
    return ALL if os.geteuid() == 0 else (USERNS, PLAIN)


def isolation(placement: str, properties: Mapping[str, bool]) -> Isolation:
    """What a worker found from inside, with the reason for whatever is missing."""
    notes = tuple(f"{name}: {_WHY[name]}" for name, holds in properties.items() if not holds)
    return Isolation(placement=placement, notes=notes, **properties)
