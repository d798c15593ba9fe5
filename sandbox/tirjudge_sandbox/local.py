"""The default backend: warm workers on this machine, each in namespaces of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Self

from tirjudge_sandbox import placements, processes
from tirjudge_sandbox.base import Execution, Limits, Program, SandboxUnavailable
from tirjudge_sandbox.pool import Pool
from tirjudge_sandbox.worker import WorkerFailed

_DEFAULT_LIMITS = Limits()


class LocalSandbox:
    """At most `capacity` programs at once on this machine; the rest wait in order.

    Covered: the host's files, environment, processes and network; the limits; other programs, before, after
    and beside. Not covered: side channels, and kernel bugs below the system call filter.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        preload: Sequence[str] = ("numpy", "sympy"),
        allow_weak_isolation: bool = False,
    ):
        """`capacity`: from 1 up, None means one per usable CPU. `preload`: modules that every program finds
        loaded, where they are installed. `allow_weak_isolation`: run even where a property cannot be had.
        """
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"the local sandbox needs Linux, this is {sys.platform}: use another backend"
            )
        self._pool = Pool(capacity)
        self.capacity = self._pool.capacity
        self._preload = tuple(preload)
        self._allow_weak = allow_weak_isolation

    async def __aenter__(self) -> Self:
        """Start the first worker. Raises SandboxUnavailable where the machine cannot give a property."""
        failures = []
        for placement in placements.candidates(allow_weak=self._allow_weak):
            start = partial(processes.start, placement, self._preload)
            try:
                worker = await start(_DEFAULT_LIMITS.disk_bytes)
            except WorkerFailed as error:
                failures.append(f"{placement}: {error}")
                continue
            if not worker.isolation.missing or self._allow_weak:
                self._pool.open(start, worker)
                return self
            failures.append(f"{placement}: no {', '.join(worker.isolation.missing)}")
            await worker.kill()
        raise SandboxUnavailable(
            f"programs cannot be isolated here ({'; '.join(failures)}). {placements.MEND}"
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every worker and what runs in it."""
        await self._pool.close()

    async def run(self, program: Program, limits: Limits = _DEFAULT_LIMITS) -> Execution:
        """Run one program; see `Sandbox.run`.

        Raises TypeError for bindings that are no JSON, RuntimeError outside of `async with`.
        """
        return await self._pool.run(program, limits)
