"""The default backend: warm workers on this machine, in the best placement that it allows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from types import TracebackType
from typing import Self

from tirjudge_sandbox import placements, processes
from tirjudge_sandbox.base import Limits, SandboxUnavailable
from tirjudge_sandbox.guest.settings import WITHOUT_NAMESPACES
from tirjudge_sandbox.machine import Machine
from tirjudge_sandbox.policy import Policy, check_installed
from tirjudge_sandbox.pool import PROGRAMS_PER_WORKER
from tirjudge_sandbox.pooled import PooledSandbox
from tirjudge_sandbox.worker import Worker, WorkerFailed


class LocalSandbox(PooledSandbox):
    """At most `capacity` programs at once on this machine; the rest wait, clients in turn, each in order.

    Covered: the host's files, environment, processes and network; the limits; other programs, before, after
    and beside. Not covered: side channels, and kernel bugs below the system call filter.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        preload: Sequence[str] = ("numpy", "sympy"),
        placement: str | None = None,
        programs_per_worker: int = PROGRAMS_PER_WORKER,
        unix_sockets: bool = False,
        policy: Policy | None = None,
        allow_weak_isolation: bool = False,
    ):
        """`capacity`: from 1 up, None means one per usable CPU. `preload`: modules that every program finds
        loaded, where they are installed. `placement`: one of `placements.ALL`, None means the best that can
        be had. `programs_per_worker`: after how many a worker is replaced. `unix_sockets`: programs may make
        sockets among themselves, which takes a placement with namespaces. `policy`: what they may import.
        `allow_weak_isolation`: run even where a property cannot be had.
        """
        if placement is not None and placement not in placements.ALL:
            raise ValueError(f"placement must be one of {', '.join(placements.ALL)}, not {placement!r}")
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"the local sandbox needs Linux, this is {sys.platform}: use another backend"
            )
        check_installed(policy)
        super().__init__(
            capacity=capacity,
            preload=preload,
            programs_per_worker=programs_per_worker,
            unix_sockets=unix_sockets,
            policy=policy,
        )
        candidates = placements.candidates() if placement is None else (placement,)
        # Without namespaces the host's sockets have names that a program could connect to.
        self._candidates = [name for name in candidates if not (unix_sockets and name in WITHOUT_NAMESPACES)]
        self._allow_weak = allow_weak_isolation

    async def __aenter__(self) -> Self:
        """Start the first worker. Raises SandboxUnavailable where the machine cannot give a property."""
        failures, weak = [], []
        for placement in self._candidates:
            try:
                worker = await self._start(placement)
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every worker and what runs in it."""
        await self._pool.close()

    async def _start(self, placement: str) -> Worker:
        return await processes.start(placement, self._preparation, Limits().disk_bytes)

    def _open(self, placement: str, worker: Worker) -> Self:
        self._pool.open(partial(processes.start, placement, self._preparation), worker)
        return self


def _refusal(failures: Sequence[str]) -> str:
    advice = "; or ".join(Machine.read().advice())
    return f"programs cannot be isolated here ({'; '.join(failures)}). To mend it, {advice}."
