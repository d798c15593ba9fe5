"""The jupyter backend: the workers of another backend, which run Jupyter kernels as well as programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from tirjudge_sandbox.base import Execution, Limits, PackageMissing, Program
from tirjudge_sandbox.containers.docker import DockerSandbox
from tirjudge_sandbox.local import LocalSandbox
from tirjudge_sandbox.notebook import kernel
from tirjudge_sandbox.notebook.cells import NotebookLimits
from tirjudge_sandbox.notebook.notebook import Notebook
from tirjudge_sandbox.workers.pool import PoolStats

_NEEDED = ("ipykernel", "jupyter_client")
_KERNEL_MODULES = (
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "jupyter_client.blocking.client",
    "tornado.platform.asyncio",
    "tornado.queues",
)
"""Loaded once per worker, since every kernel would otherwise take seconds to start."""

_BACKENDS: dict[str, type[LocalSandbox] | type[DockerSandbox]] = {
    "local": LocalSandbox,
    "docker": DockerSandbox,
}
_DEFAULT_LIMITS = Limits()
_DEFAULT_NOTEBOOK_LIMITS = NotebookLimits()


class JupyterSandbox:
    """A sandbox for notebooks and programs, at most `capacity` open at once; see `Sandbox` for the order.

    The protection is that of the sandbox inside, with two differences: programs may make sockets among
    themselves, and outputs and status of a cell are reported by the kernel, so the cell can forge them.
    """

    def __init__(self, *, inside: str = "local", preload: Sequence[str] = ("numpy", "sympy"), **options: Any):
        """Raises ValueError for a bad option, PackageMissing without the extra `jupyter`.

        `inside`: the backend whose workers are used, `local` or `docker`; `options` are passed to it.
        """
        if options.get("import_policy") is not None:
            # The kernel itself runs as a program, and imports far more than a policy allows.
            raise ValueError("notebooks take no import policy: their kernel would not pass it")
        if inside not in _BACKENDS:
            raise ValueError(f"inside must be one of {', '.join(_BACKENDS)}, not {inside!r}")
        if inside == "local" and (missing := [name for name in _NEEDED if find_spec(name) is None]):
            raise PackageMissing(f"notebooks need {' and '.join(missing)}: pip install 'tirjudge[jupyter]'")
        modules = (*preload, *_KERNEL_MODULES)
        # Every notebook would count as a long program, so that more of them than `capacity` would be open.
        options.setdefault("spare", 0)
        self._box: LocalSandbox | DockerSandbox = _BACKENDS[inside](
            preload=modules, unix_sockets=True, **options
        )
        self.capacity = self._box.capacity
        source = Path(kernel.__file__).read_text(encoding="utf-8")
        if options.get("prepare") is not None:
            # In a namespace of its own, so that the kernel's names do not replace prepared ones.
            source = f"exec({source!r}, {{'__name__': '__main__', 'PREPARED': globals()}})"
        self._kernel = source

    async def __aenter__(self) -> Self:
        """Start the first worker. Raises SandboxUnavailable if an isolation property cannot be provided."""
        await self._box.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        """Kill every worker with the programs and kernels that run in them."""
        await self._box.__aexit__(*error)

    async def run(self, program: Program, limits: Limits = _DEFAULT_LIMITS) -> Execution:
        """Run one program, without a kernel; see `Sandbox.run`."""
        return await self._box.run(program, limits)

    def notebook(
        self,
        *,
        files: Mapping[str, bytes] | None = None,
        fetch: Sequence[str] = (),
        limits: NotebookLimits = _DEFAULT_NOTEBOOK_LIMITS,
        seed: int = 0,
        client: str = "",
    ) -> Notebook:
        """Return a notebook for use with `async with`. It holds one of the `capacity` places while open.

        `files`, `fetch`, `seed`, `client`: see `Program`. `Notebook.close` returns the fetched files.
        """
        program = Program(
            source=self._kernel, files=files or {}, fetch=tuple(fetch), seed=seed, client=client
        )
        return Notebook(self._box, program, limits)

    def stats(self) -> PoolStats:
        """Return the state and counters of the pool; a notebook counts as a program."""
        return self._box.stats()
