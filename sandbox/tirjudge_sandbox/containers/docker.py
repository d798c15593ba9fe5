"""The docker backend: the same workers as the local sandbox's, each in a container of its own."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from tirjudge_sandbox.base import MIB, SandboxUnavailable
from tirjudge_sandbox.containers import client, container, image
from tirjudge_sandbox.import_policy import ImportPolicy
from tirjudge_sandbox.prepared import PREPARE_MEMORY_BYTES, PREPARE_SECONDS, Prepared, PreparedSource
from tirjudge_sandbox.workers.pool import PROGRAMS_PER_WORKER, PooledSandbox
from tirjudge_sandbox.workers.worker import PreparedFailed, WorkerFailed

_ADVICE = (
    "A kernel with Landlock (from 5.13 on, and enabled) hides /proc; "
    "allow_weak_isolation=True runs programs without it."
)


class DockerSandbox(PooledSandbox):
    """A sandbox whose programs run in containers, at most `capacity` at once; see `Sandbox` for the order.

    A container stays for the next program. The protection is that of `LocalSandbox`, with a second layer: the
    container's own namespaces, capabilities, filter, memory, processes and CPUs hold even for a worker that a
    program took over. It does not protect against bugs of the engine itself, or of the kernel in the system
    calls that the filter allows. The engine must run on this machine.
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
        spare: int = 1,
        unix_sockets: bool = False,
        import_policy: ImportPolicy | None = None,
        allow_weak_isolation: bool = False,
        prepare: PreparedSource | None = None,
        prepare_seconds: float = PREPARE_SECONDS,
        prepare_memory_bytes: float = PREPARE_MEMORY_BYTES,
    ):
        """Raises ValueError for a bad option, SandboxUnavailable for the runtime of gVisor.

        `capacity`, `preload`, `programs_per_worker`, `spare`, `unix_sockets`, `allow_weak_isolation`,
        `prepare` and its bounds, and `import_policy`, for which the image needs RestrictedPython: see
        `LocalSandbox`. `image`: None means the image that `tirjudge sandbox build` built; another one must be
        derived from it. `runtime`: None means the engine's default. `memory_bytes` and `cpus`: limits of one
        container, its interpreter included.
        """
        if runtime == "runsc":
            raise SandboxUnavailable(
                "gVisor cannot receive descriptors from the host, which carry programs and their output: "
                "use another runtime"
            )
        if not (memory_bytes > 0 and cpus > 0):
            raise ValueError(f"memory_bytes and cpus must be positive, not {memory_bytes} and {cpus}")
        super().__init__(
            capacity=capacity,
            preload=preload,
            programs_per_worker=programs_per_worker,
            spare=spare,
            unix_sockets=unix_sockets,
            import_policy=import_policy,
            prepared=None if prepare is None else Prepared.of(prepare, prepare_seconds, prepare_memory_bytes),
        )
        self._image = image
        self._runtime = runtime
        self._memory_bytes = memory_bytes
        self._cpus = cpus
        self._allow_weak = allow_weak_isolation
        self._id = secrets.token_hex(16)

    async def __aenter__(self) -> Self:
        """Remove containers that dead processes left behind, and start the first container.

        Raises SandboxUnavailable without an engine or an image, and if an isolation property is missing.
        """
        try:
            start = partial(container.start, await client.ask(self._shape))
            worker = await start(self._pool.first_folder)
        except PreparedFailed as error:
            raise SandboxUnavailable(str(error)) from error
        except (client.EngineFailed, WorkerFailed) as error:
            raise SandboxUnavailable(f"no container could be started: {error}") from error
        if worker.isolation.missing and not self._allow_weak:
            await worker.kill()
            raise SandboxUnavailable(f"{'; '.join(worker.isolation.notes)}. {_ADVICE}")
        self._pool.open(start, worker)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Remove every container with the programs that run in them."""
        await self._pool.close()
        # Containers that were lost while the engine was down remain. If it still is, the next sandbox that
        # opens removes them.
        with contextlib.suppress(client.EngineFailed):
            await client.ask(lambda docker: client.remove_all(docker, self._id))

    def _shape(self, docker: Any) -> container.Shape:
        client.remove_orphans(docker)
        return container.Shape(
            sandbox=self._id,
            image=image.find(docker, self._image),
            runtime=self._runtime,
            memory_bytes=self._memory_bytes,
            cpus=self._cpus,
            preparation=self._preparation,
            prepared=self._prepared,
        )
