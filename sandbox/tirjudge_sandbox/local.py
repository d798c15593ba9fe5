"""The default backend: warm workers on this host, in the best placement that it allows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Self

from tirjudge_sandbox.base import SandboxUnavailable
from tirjudge_sandbox.guest.namespaces import WITHOUT_NAMESPACES
from tirjudge_sandbox.import_policy import ImportPolicy, check_installed
from tirjudge_sandbox.prepared import PREPARE_MEMORY_BYTES, PREPARE_SECONDS, Prepared, PreparedSource
from tirjudge_sandbox.workers import local_process
from tirjudge_sandbox.workers.host import PLACEMENTS, Host, candidate_placements
from tirjudge_sandbox.workers.pool import PROGRAMS_PER_WORKER, PooledSandbox
from tirjudge_sandbox.workers.worker import PreparedFailed, Worker, WorkerFailed


class LocalSandbox(PooledSandbox):
    """A sandbox whose programs run on this host, at most `capacity` at once; see `Sandbox` for the order.

    It protects the host's files, environment, processes and network, enforces the limits, and protects other
    programs that ran earlier, run later or run at the same time. It does not protect against side channels,
    or bugs of the kernel in the system calls that the filter allows.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        preload: Sequence[str] = ("numpy", "sympy"),
        placement: str | None = None,
        programs_per_worker: int = PROGRAMS_PER_WORKER,
        spare: int = 1,
        unix_sockets: bool = False,
        import_policy: ImportPolicy | None = None,
        allow_weak_isolation: bool = False,
        prepare: PreparedSource | None = None,
        prepare_seconds: float = PREPARE_SECONDS,
        prepare_memory_bytes: float = PREPARE_MEMORY_BYTES,
    ):
        """Raises ValueError for a bad option, SandboxUnavailable without Linux or a needed package.

        `capacity`: at least 1; None means one per usable CPU. `preload`: modules that every program finds
        loaded, where they are installed. `placement`: one of `host.PLACEMENTS`; None means the best that
        works. `programs_per_worker`: a worker is replaced after this many programs. `spare`: programs that
        may run in addition to `capacity` while so many have been running for 0.15 s each, so that short
        programs need not wait for them. `unix_sockets`: programs may make sockets among themselves, which
        needs a placement with namespaces. `import_policy`: the modules that programs may import.
        `allow_weak_isolation`: run even if an isolation property is missing.

        `prepare`: a trusted program, as a `Program` or the path of its file, which each worker runs once;
        every program goes on in its module `__main__`, as the next cell of a notebook would. Of a folder,
        `__main__.py` is run, and finds the other files in its working folder, which is then emptied.
        `prepare_seconds`, `prepare_memory_bytes`: bounds of its time, and of the address space that it adds.
        """
        if placement is not None and placement not in PLACEMENTS:
            raise ValueError(f"placement must be one of {', '.join(PLACEMENTS)}, not {placement!r}")
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"the local sandbox needs Linux, this is {sys.platform}: use another backend"
            )
        check_installed(import_policy)
        super().__init__(
            capacity=capacity,
            preload=preload,
            programs_per_worker=programs_per_worker,
            spare=spare,
            unix_sockets=unix_sockets,
            import_policy=import_policy,
            prepared=None if prepare is None else Prepared.of(prepare, prepare_seconds, prepare_memory_bytes),
        )
        self._candidates = candidate_placements() if placement is None else (placement,)
        self._allow_weak = allow_weak_isolation

    async def __aenter__(self) -> Self:
        """Start the first worker.

        Raises SandboxUnavailable if this host cannot provide an isolation property, and if the prepared
        program fails.
        """
        failures, weak = [], []
        for placement in self._candidates:
            # Without namespaces, a program with sockets could connect to those of the host by name.
            if self._preparation.unix_sockets and placement in WITHOUT_NAMESPACES:
                failures.append(f"{placement}: sockets of programs need namespaces")
                continue
            try:
                worker = await self._start(placement)
            except PreparedFailed as error:
                raise SandboxUnavailable(str(error)) from error
            except WorkerFailed as error:
                failures.append(f"{placement}: {error}")
                continue
            if not (missing := worker.isolation.missing):
                return self._open(placement, worker)
            failures.append(f"{placement}: no {', '.join(missing)}")
            weak.append((len(missing), placement))
            await worker.kill()
        if not weak or not self._allow_weak:
            raise SandboxUnavailable(_refusal(failures))
        _, placement = min(weak, key=itemgetter(0))
        try:
            return self._open(placement, await self._start(placement))
        except WorkerFailed as error:
            raise SandboxUnavailable(_refusal([f"{placement}: {error}"])) from error

    async def __aexit__(self, *error: object) -> None:
        """Kill every worker and the programs that run in them."""
        await self._pool.close()

    async def _start(self, placement: str) -> Worker:
        return await local_process.start(
            placement, self._preparation, self._prepared, self._pool.first_folder
        )

    def _open(self, placement: str, worker: Worker) -> Self:
        start = partial(local_process.start, placement, self._preparation, self._prepared)
        self._pool.open(start, worker)
        return self


def _refusal(failures: Sequence[str]) -> str:
    advice = "; or ".join(Host.read().advice())
    return f"programs cannot be isolated here ({'; '.join(failures)}). To fix this, {advice}."
