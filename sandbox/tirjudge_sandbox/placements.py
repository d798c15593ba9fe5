"""Where a worker can be put on this machine, and what holds there."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tirjudge_sandbox.base import Isolation

PLAIN = "plain"
"""No namespaces at all: the weak placement, never taken without leave."""

_WHY = {
    "host_files_hidden": "names of the host's files are visible, and so is /proc",
    "network_cut": "programs can open sockets",
    "processes_contained": "processes are not in a namespace that ends with the program, or not counted",
    "calls_filtered": "the kernel takes no system call filter",
}

MEND = (
    "Run as root with CAP_SYS_ADMIN; or let users make namespaces (sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns; in a container: its "
    "seccomp profile); or accept less: allow_weak_isolation=True, --allow-weak-isolation."
)


def candidates(*, allow_weak: bool) -> tuple[str, ...]:
    """Placements to try, the best first."""
    strong = ("root", "userns") if os.geteuid() == 0 else ("userns",)
    return (*strong, PLAIN) if allow_weak else strong


def isolation(placement: str, properties: Mapping[str, bool]) -> Isolation:
    """What a worker found from inside, with the reason for whatever is missing."""
    notes = tuple(f"{name}: {_WHY[name]}" for name, holds in properties.items() if not holds)
    return Isolation(placement=placement, notes=notes, **properties)
