"""The docker backend: the local sandbox's workers, each in a container of its own."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from tirjudge_sandbox.base import MIB, Limits, SandboxUnavailable
from tirjudge_sandbox.containers import container, engine, image, leftovers
from tirjudge_sandbox.policy import Policy
from tirjudge_sandbox.pool import PROGRAMS_PER_WORKER
from tirjudge_sandbox.pooled import PooledSandbox
from tirjudge_sandbox.worker import WorkerFailed

_MEND = (
    "A kernel with Landlock (5.13, and not switched off) hides /proc; allow_weak_isolation=True does without."
)


class DockerSandbox(PooledSandbox):
    """At most `capacity` programs at once, each in a container that stays for the next; the rest wait.

    Covered: what `LocalSandbox` covers, and by a second wall: the container's own namespaces, capabilities,
    filter, memory, processes and CPUs hold even for a worker that a program took over. Not covered: the
    engine itself, and kernel bugs below the system call filter. The engine must run on this machine.
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        preload: Sequence[str] = ("numpy", "sympy"),
        image: str | None = None,
        runtime: str | None = None,
        memory_bytes: int = 1024 * MIB,
        cpus: float = 1.0,
        programs_per_worker: int = PROGRAMS_PER_WORKER,
        unix_sockets: bool = False,
        policy: Policy | None = None,
        allow_weak_isolation: bool = False,
    ):
        """`capacity`, `preload`, `programs_per_worker`, `unix_sockets`, `policy` (for which the image needs
        RestrictedPython), `allow_weak_isolation`: see `LocalSandbox`. `image`: None means what `tirjudge
        sandbox build` built; another must be derived from it. `runtime`: the engine's default when None.
        `memory_bytes` and `cpus`: what one container may use, its interpreter included.
        """
        if runtime == "runsc":
            raise SandboxUnavailable(
                "gVisor takes no descriptors from the host, by which programs and their output travel: "
                "use another runtime"
            )
        if not (memory_bytes > 0 and cpus > 0):
            raise ValueError(f"memory_bytes and cpus must be positive, not {memory_bytes} and {cpus}")
        super().__init__(
            capacity=capacity,
            preload=preload,
            programs_per_worker=programs_per_worker,
            unix_sockets=unix_sockets,
            policy=policy,
        )
        self._image = image
        self._runtime = runtime
        self._memory_bytes = memory_bytes
        self._cpus = cpus
        self._allow_weak = allow_weak_isolation
        self._id = secrets.token_hex(16)

    async def __aenter__(self) -> Self:
        """Remove what dead processes left behind, and start the first container.

        Raises SandboxUnavailable without an engine or an image, and where a property cannot be had.
        """
        try:
            start = partial(container.start, await engine.ask(self._shape))
            worker = await start(Limits().disk_bytes)
        except (engine.EngineFailed, WorkerFailed) as error:
            raise SandboxUnavailable(f"no container could be started: {error}") from error
        if worker.isolation.missing and not self._allow_weak:
            await worker.kill()
            raise SandboxUnavailable(f"{'; '.join(worker.isolation.notes)}. {_MEND}")
        self._pool.open(start, worker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove every container, with what runs in it."""
        await self._pool.close()
        # Those too that were lost while the engine was down. Is it still, the next sandbox removes them.
        with contextlib.suppress(engine.EngineFailed):
            await engine.ask(lambda client: leftovers.remove_all(client, self._id))

    def _shape(self, client: Any) -> container.Shape:
        leftovers.remove_orphans(client)
        return container.Shape(
            sandbox=self._id,
            image=image.find(client, self._image),
            runtime=self._runtime,
            memory_bytes=self._memory_bytes,
            cpus=self._cpus,
            preparation=self._preparation,
        )
