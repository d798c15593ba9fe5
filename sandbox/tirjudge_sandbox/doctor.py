"""A diagnosis of this host: every placement and backend is tried, and its isolation or failure reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from tirjudge_sandbox.base import Execution, Isolation, Limits, Program, Sandbox, SandboxUnavailable, Status
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.guest.namespaces import WITHOUT_NAMESPACES
from tirjudge_sandbox.guest.settings import Preparation
from tirjudge_sandbox.prepared import PREPARE_MEMORY_BYTES, PREPARE_SECONDS, Prepared
from tirjudge_sandbox.registry import open_sandbox, sandbox_names
from tirjudge_sandbox.workers import local_process
from tirjudge_sandbox.workers.host import PLACEMENTS, candidate_placements
from tirjudge_sandbox.workers.worker import WorkerFailed

LOCAL = "local"

_PREPARED = Program("import time\nprepared_at = time.monotonic()")
_ASKING = Program("print(prepared_at)")


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
    prepares: str = "never"
    """How often it runs a prepared program: `once in each worker`, `before each program`, `never`."""

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
        prepared = Prepared.of(_PREPARED, PREPARE_SECONDS, PREPARE_MEMORY_BYTES)
        preparation = Preparation(prepared_bytes=prepared.memory_bytes)
        worker = await local_process.start(name, preparation, prepared, WorkingFolder.of(Limits()))
    except WorkerFailed as error:
        return Finding(backend=LOCAL, placement=name, isolation=None, reason=str(error))
    try:
        asked = [await worker.run(_ASKING, Limits()) for _ in range(2)]
    finally:
        await worker.kill()
    return _found(LOCAL, worker.isolation, _prepares(asked))


async def _backend(name: str) -> Finding:
    asked: list[Execution] = []
    try:
        box = _with_prepared(name)
        if box is None:
            box = open_sandbox(name)
        async with box:
            execution = await box.run(Program(source=""))
            asked = [await box.run(_ASKING) for _ in range(2)]
    except SandboxUnavailable as error:
        return Finding(backend=name, placement="", isolation=None, reason=str(error))
    except Exception as error:
        # A third-party backend may raise anything, and must not keep the others from being examined.
        reason = f"{type(error).__name__}: {error}"
        return Finding(backend=name, placement="", isolation=None, reason=reason)
    if execution.isolation is None or execution.status is not Status.OK:
        reason = execution.detail or f"an empty program ended with {execution.status}"
        return Finding(backend=name, placement="", isolation=None, reason=reason)
    return _found(name, execution.isolation, _prepares(asked))


def _with_prepared(name: str) -> Sandbox | None:
    """Return the sandbox called `name`, not yet open; None if it takes no prepared program."""
    try:
        return open_sandbox(name, prepare=_PREPARED)
    except ValueError:
        return None


def _prepares(asked: Sequence[Execution]) -> str:
    """Return how often the prepared program was run for these programs, which print when it was."""
    if any(one.status is not Status.OK for one in asked):
        return "never"
    return "once in each worker" if len({one.stdout for one in asked}) == 1 else "before each program"


def _found(backend: str, isolation: Isolation, prepares: str) -> Finding:
    return Finding(
        backend=backend,
        placement=isolation.placement,
        isolation=isolation,
        reason="; ".join(isolation.notes),
        prepares=prepares,
    )
