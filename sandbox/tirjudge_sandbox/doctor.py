"""Where programs can be run here, how well isolated, and why not elsewhere: each place tried for real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tirjudge_sandbox import placements, processes
from tirjudge_sandbox.base import Isolation, Limits, Program, SandboxUnavailable, Status
from tirjudge_sandbox.guest.settings import Preparation
from tirjudge_sandbox.registry import open_sandbox, sandbox_names
from tirjudge_sandbox.worker import WorkerFailed

LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place to run programs."""

    backend: str
    """Name for `open_sandbox`."""
    placement: str
    """Empty where a backend did not get so far as to have one."""
    isolation: Isolation | None
    """None where no program can run at all."""
    reason: str = ""
    """Why no program can run, or why a property is missing."""

    @property
    def sound(self) -> bool:
        """Whether all properties hold."""
        return self.isolation is not None and not self.isolation.missing


async def examine() -> AsyncIterator[Finding]:
    """Every placement of the local sandbox, the best first, then every other backend that is installed."""
    for placement in placements.ALL:
        yield await _placement(placement)
    for name in sandbox_names():
        if name != LOCAL:
            yield await _backend(name)


async def _placement(name: str) -> Finding:
    if name not in placements.candidates():
        return Finding(backend=LOCAL, placement=name, isolation=None, reason="only for root")
    try:
        worker = await processes.start(name, Preparation(), Limits().disk_bytes)
    except WorkerFailed as error:
        return Finding(backend=LOCAL, placement=name, isolation=None, reason=str(error))
    await worker.kill()
    return _found(LOCAL, worker.isolation)


async def _backend(name: str) -> Finding:
    try:
        async with open_sandbox(name) as box:
            execution = await box.run(Program(source=""))
    except SandboxUnavailable as error:
        return Finding(backend=name, placement="", isolation=None, reason=str(error))
    except Exception as error:
        # Other people's backends fail in ways of their own, and the rest is to be examined all the same.
        reason = f"{type(error).__name__}: {error}"
        return Finding(backend=name, placement="", isolation=None, reason=reason)
    if execution.isolation is None or execution.status is not Status.OK:
        reason = execution.detail or f"an empty program ended with {execution.status}"
        return Finding(backend=name, placement="", isolation=None, reason=reason)
    return _found(name, execution.isolation)


def _found(backend: str, isolation: Isolation) -> Finding:
    reason = "; ".join(isolation.notes)
    return Finding(backend=backend, placement=isolation.placement, isolation=isolation, reason=reason)
