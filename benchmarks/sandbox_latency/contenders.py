"""The ways to run a program that are compared, each opened for its measurements and closed after them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.sandbox_latency.measurement import Run
from tirjudge_sandbox.base import Program, SandboxUnavailable
from tirjudge_sandbox.registry import open_sandbox

SOURCE = "print(sum(range(1000)))"
_PRINTED = "499500\n"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A way to run programs. Opening it raises SandboxUnavailable if it is not available."""

    name: str
    baseline: str | None
    """Name of the contender that this one is compared with; None for a baseline."""
    open: Callable[[int], AbstractAsyncContextManager[Run]]
    """Called with the number of programs to run at once."""


@contextlib.asynccontextmanager
async def _sandbox(name: str, capacity: int) -> AsyncIterator[Run]:
    async with open_sandbox(name, capacity=capacity) as box:

        async def run() -> None:
            execution = await box.run(Program(source=SOURCE))
            _expect(execution.stdout, execution.detail or execution.stderr)

        yield run


@contextlib.asynccontextmanager
async def _subprocess(_: int) -> AsyncIterator[Run]:
    async def run() -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", SOURCE, stdout=pipe, stderr=pipe
        )
        stdout, stderr = await process.communicate()
        _expect(stdout.decode(), stderr.decode())

    yield run


@contextlib.asynccontextmanager
async def _exec(capacity: int) -> AsyncIterator[Run]:
    """Run `docker exec` through the API, one at a time in each container.

    A run creates an exec, starts it, reads its output and asks for its exit code.
    """
    from tirjudge_sandbox.containers.client import EngineFailed

    threads = ThreadPoolExecutor(capacity)
    free: asyncio.Queue[Any] = asyncio.Queue()
    client = await asyncio.to_thread(_client)
    containers: list[Any] = []
    try:
        for _ in range(capacity):
            containers.append(await asyncio.to_thread(_container, client))
            free.put_nowait(containers[-1])

        async def run() -> None:
            container = await free.get()
            command = ["python3", "-I", "-c", SOURCE]
            loop = asyncio.get_running_loop()
            _, output = await loop.run_in_executor(threads, container.exec_run, command)
            free.put_nowait(container)
            _expect(output.decode(), output.decode())

        yield run
    except EngineFailed as error:
        raise SandboxUnavailable(str(error)) from error
    finally:
        threads.shutdown()
        for container in containers:
            await asyncio.to_thread(container.remove, force=True)
        client.close()


def _client() -> Any:
    try:
        import docker

        return docker.from_env()
    except Exception as error:
        raise SandboxUnavailable(f"no Docker engine: {error}") from error


def _container(client: Any) -> Any:
    """Start a container hardened and labelled like the sandbox's, which removes it if this process dies."""
    from tirjudge_sandbox.containers import image
    from tirjudge_sandbox.containers.owner import Owner

    return client.containers.run(
        image.find(client),
        ["python3", "-c", "import time; time.sleep(3600)"],
        detach=True,
        labels=Owner.current().labels(),
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true"],
        pids_limit=128,
        mem_limit="1g",
        memswap_limit="1g",
        nano_cpus=10**9,
        ipc_mode="none",
        tmpfs={"/tmp": "size=16m"},
    )


def _expect(printed: str, otherwise: str) -> None:
    if printed != _PRINTED:
        raise RuntimeError(f"the program printed {printed!r}: {otherwise}")


PYTHON = Contender(name="python3 -I", baseline=None, open=_subprocess)
EXEC = Contender(name="docker exec", baseline=None, open=_exec)
LOCAL = Contender(name="local", baseline=PYTHON.name, open=partial(_sandbox, "local"))
DOCKER = Contender(name="docker", baseline=EXEC.name, open=partial(_sandbox, "docker"))
ALL = (LOCAL, PYTHON, DOCKER, EXEC)


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
