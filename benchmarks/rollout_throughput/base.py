"""The interface of another trainer's rollout loop, and the execution of a program for its tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.rollout_throughput.dialogues import Dialogue, Tokens
from tirjudge_sandbox import Program


@dataclass(frozen=True, slots=True)
class Loop:
    """A trainer's loop, ready to roll out."""

    name: str
    """The package with its version."""
    roll_out: Callable[[Sequence[Dialogue], Any], Awaitable[list[Tokens]]]
    """Takes dialogues and a sandbox."""
    busy_seconds: Callable[[], float]
    """Wall seconds so far in which tokens were generated."""


async def printed(sandbox: Any, code: str) -> str:
    """Run a program and return what it prints."""
    return str((await sandbox.run(Program(source=code))).stdout).strip()
