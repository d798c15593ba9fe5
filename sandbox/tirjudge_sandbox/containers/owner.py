"""Whose container it is: labels that tell a living trainer's containers from those a dead one left behind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

_PREFIX = "tirjudge.owner."
LABEL = f"{_PREFIX}pid"
"""Every container of ours has this label."""


@dataclass(frozen=True)
class Owner:
    """A process, told apart from every other that had or will have its id."""

    pid: str
    started: str
    """Clock ticks between the machine's start and the process's."""
    boot: str
    """The kernel's id of the machine's present run."""
    namespace: str
    """The pid namespace in which `pid` counts."""

    @classmethod
    def current(cls) -> Self:
        """This process."""
        return cls(
            pid=str(os.getpid()),
            started=_started("self") or "",
            boot=_boot(),
            namespace=os.readlink("/proc/self/ns/pid"),
        )

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self:
        """The owner that `labels` name. Raises KeyError when one is missing."""
        return cls(**{field.name: labels[_PREFIX + field.name] for field in fields(cls)})

    def labels(self) -> dict[str, str]:
        return {_PREFIX + name: value for name, value in asdict(self).items()}

    @property
    def dead(self) -> bool:
        """True only when it is sure: processes of another pid namespace cannot be seen from here."""
        if self.boot != _boot():
            return True
        if self.namespace != os.readlink("/proc/self/ns/pid"):
            return False
        return _started(self.pid) != self.started


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: str) -> str | None:
    """Field 22 of /proc/PID/stat (proc(5)); None for a process that is gone, or dead and not yet reaped."""
    try:
        # The second field is the name, in brackets, and may hold anything.
        after_name = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if after_name[0] in "ZX" else after_name[19]
