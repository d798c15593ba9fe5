"""The notebook interface: limits, the result of a cell, and who reported its status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal

from tirjudge_sandbox.base import MIB


class CellStatus(StrEnum):
    """The way a cell ended. The kernel reports the first two, so code in it can forge them."""

    OK = "ok"
    ERROR = "error"
    """The cell raised an exception; see `CellRun.error`."""
    TIME_LIMIT = "time_limit"
    """The cell was interrupted. If it did not stop, the kernel was killed, and the next cell gets a new
    one."""
    OUTPUT_LIMIT = "output_limit"
    """Same as TIME_LIMIT, for output beyond `NotebookLimits.output_bytes`; the output up to there is kept."""
    KERNEL_DIED = "kernel_died"
    """The kernel's process ended while the cell ran: it exited, crashed, or reached its memory or CPU
    limit."""
    CLOSED = "closed"
    """The cell was not run: the notebook had been idle too long, had reached its total time, or was closed
    while a new kernel was starting for the cell."""
    SANDBOX_FAILED = "sandbox_failed"
    """The sandbox failed, not the cell. Never show this to a model as a cell's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookLimits:
    """The resources that one notebook may use. All limits are enforced from outside of the kernel."""

    cell_seconds: float = 60.0
    """Wall time of a cell, unless `Notebook.run` is given another."""
    idle_seconds: float = 600.0
    """The notebook is closed after this time without a cell."""
    total_seconds: float = 3600.0
    """The notebook is closed after this time since it was opened, restarts of the kernel included."""
    cpu_seconds: float = 600.0
    """CPU time of one kernel."""
    memory_bytes: int = 1024 * MIB
    """Address space beyond what the warm interpreter and the kernel itself map."""
    processes: int = 16
    """Processes and threads that cells may start."""
    output_bytes: int = MIB
    """Output of one cell: streams, displays and error together."""
    disk_bytes: int = 64 * MIB
    """Everything written to the working folder."""

    def __post_init__(self) -> None:
        """Raise ValueError for a limit that is not positive and finite."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 < value < math.inf:
                raise ValueError(f"NotebookLimits.{field.name} must be positive and finite, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellError:
    """An uncaught exception, as reported by the kernel."""

    name: str
    value: str
    traceback: tuple[str, ...]
    """Lines without colour codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """The result of one cell."""

    status: CellStatus
    stdout: str = ""
    stderr: str = ""
    displays: tuple[Mapping[str, Any], ...] = ()
    """MIME bundles in order, the last expression's value included. Each maps a type to data."""
    error: CellError | None = None
    truncated: bool = False
    """True if the output limit dropped some output."""
    restarted: bool = False
    """True if the kernel had died before: the cell ran in a new one, without the state and files of earlier
    cells."""
    wall_seconds: float = 0.0
    detail: str = ""
    """The reason for a status that the sandbox reports; empty otherwise."""

    @property
    def by(self) -> Literal["kernel", "sandbox"]:
        """Who reported the status. Code that runs in the kernel can forge the kernel's report."""
        return "kernel" if self.status in (CellStatus.OK, CellStatus.ERROR) else "sandbox"
