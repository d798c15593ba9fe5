"""A diagnosis of this host: every placement and backend is tried, and its isolation or failure reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tirjudge_sandbox.base import Isolation, Limits, Program, SandboxUnavailable, Status
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.guest.settings import WITHOUT_NAMESPACES, Preparation
from tirjudge_sandbox.registry import open_sandbox, sandbox_names
from tirjudge_sandbox.workers import local_process
from tirjudge_sandbox.workers.host import PLACEMENTS, candidate_placements
from tirjudge_sandbox.workers.worker import WorkerFailed

LOCAL = "local"


def lacking(placement: str) -> str:
    """Return what honest programs cannot do in a placement of the local sandbox, as a sentence."""
    if placement in WITHOUT_NAMESPACES:
        return "Programs there can write no files and start no processes (subprocess, multiprocessing)."
    return (
        "Programs there can start no other programs (subprocess), and processes of their own "
        "(multiprocessing) only with the limit `processes`."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of trying one placement or backend."""

    backend: str
    """Name of the backend for `open_sandbox`."""
    placement: str
    """Empty if the backend failed before it had one."""
    isolation: Isolation | None
    """None if no program can run at all."""
    reason: str = ""
    """The reason why no program can run, or why a property is missing."""

    @property
    def sound(self) -> bool:
        """True if all isolation properties hold."""
        return self.isolation is not None and not self.isolation.missing


async def examine() -> AsyncIterator[Finding]:
    """Try every placement of the local sandbox, the best first, then every other installed backend."""
    for placement in PLACEMENTS:
        yield await _placement(placement)
    for name in sandbox_names():
        if name != LOCAL:
            yield await _backend(name)


async def _placement(name: str) -> Finding:
    if name not in candidate_placements():
        return Finding(backend=LOCAL, placement=name, isolation=None, reason="only for root")
    try:
        worker = await local_process.start(name, Preparation(), None, WorkingFolder.of(Limits()))
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
        # A third-party backend may raise anything, and must not keep the others from being examined.
        reason = f"{type(error).__name__}: {error}"
        return Finding(backend=name, placement="", isolation=None, reason=reason)
    if execution.isolation is None or execution.status is not Status.OK:
        reason = execution.detail or f"an empty program ended with {execution.status}"
        return Finding(backend=name, placement="", isolation=None, reason=reason)
    return _found(name, execution.isolation)


def _found(backend: str, isolation: Isolation) -> Finding:
    reason = "; ".join(isolation.notes)
    return Finding(backend=backend, placement=isolation.placement, isolation=isolation, reason=reason)
