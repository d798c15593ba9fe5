"""The ways to run a program that are compared, each opened for its measurements and closed after them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from benchmarks.sandbox_latency.measurement import Measured, RunProgram
from tirjudge_sandbox.base import Program, SandboxUnavailable
from tirjudge_sandbox.registry import open_sandbox

Open = Callable[[int], AbstractAsyncContextManager[RunProgram]]
"""Opens a way to run programs, so many at once; raises SandboxUnavailable if it is not available."""


@contextlib.asynccontextmanager
async def _sandbox(name: str, capacity: int) -> AsyncIterator[RunProgram]:
    async with open_sandbox(name, capacity=capacity) as box:

        async def run(program: Measured) -> None:
            execution = await box.run(Program(source=program.source))
            program.check(execution.stdout, execution.detail or execution.stderr)

        yield run


@contextlib.asynccontextmanager
async def _subprocess(_: int) -> AsyncIterator[RunProgram]:
    async def run(program: Measured) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", program.source, stdout=pipe, stderr=pipe
        )
        stdout, stderr = await process.communicate()
        program.check(stdout.decode(), stderr.decode())

    yield run


@contextlib.asynccontextmanager
async def _jupyter(capacity: int) -> AsyncIterator[RunProgram]:
    """Run programs in warm Jupyter kernels, one at a time in each.

    A kernel keeps the variables and imports of earlier programs, and nothing separates it from the host.
    """
    from jupyter_client.manager import start_new_async_kernel

    free: asyncio.Queue[Any] = asyncio.Queue()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(capacity):
            manager, client = await start_new_async_kernel(kernel_name="python3")
            stack.push_async_callback(manager.shutdown_kernel, now=True)
            stack.callback(client.stop_channels)
            free.put_nowait(client)

        async def run(program: Measured) -> None:
            client, printed = await free.get(), []

            def on_message(message: Any) -> None:
                printed.append(str(message["content"].get("text", "")))

            try:
                await client.execute_interactive(program.source, store_history=False, output_hook=on_message)
            finally:
                free.put_nowait(client)
            program.check("".join(printed), "see the kernel's output")

        yield run


@contextlib.asynccontextmanager
async def _llm_sandbox(capacity: int) -> AsyncIterator[RunProgram]:
    """Run programs in llm-sandbox's sessions of its daemonless backend, bubblewrap, one at a time in each.

    Its programs find the same interpreter and libraries as the others.
    """
    if find_spec("llm_sandbox") is None or shutil.which("bwrap") is None:
        raise SandboxUnavailable("needs `pip install llm-sandbox` and `apt-get install bubblewrap`")
    from llm_sandbox import SandboxBackend, SandboxSession
    from llm_sandbox.local.config import DEFAULT_READ_ONLY_PATHS, LocalSandboxConfig

    prefixes = {sys.prefix, sys.base_prefix}
    config = LocalSandboxConfig(
        read_only_paths=(*DEFAULT_READ_ONLY_PATHS, *sorted(prefixes - {"/usr"})),
        python_executable=sys.executable,
    )
    threads, free = ThreadPoolExecutor(capacity), asyncio.Queue[Any]()
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        stack.callback(threads.shutdown)
        for _ in range(capacity):
            session = SandboxSession(
                backend=SandboxBackend.BUBBLEWRAP,
                lang="python",
                sandbox_config=config,
                skip_environment_setup=True,  # which would make an environment without the libraries
            )
            free.put_nowait(stack.enter_context(session))

        async def run(program: Measured) -> None:
            session = await free.get()
            try:
                output = await loop.run_in_executor(threads, session.run, program.source)
            finally:
                free.put_nowait(session)
            program.check(output.stdout, output.stderr)

        yield run


@contextlib.asynccontextmanager
async def _exec(capacity: int) -> AsyncIterator[RunProgram]:
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

        async def run(program: Measured) -> None:
            container = await free.get()
            command = ["python3", "-I", "-c", program.source]
            loop = asyncio.get_running_loop()
            _, output = await loop.run_in_executor(threads, container.exec_run, command)
            free.put_nowait(container)
            program.check(output.decode(), output.decode())

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
    from tirjudge_sandbox.containers.client import Owner

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


def _version(package: str) -> str:
    return f"{package} {version(package)}" if find_spec(package.replace("-", "_")) else package


LOCAL: Open = partial(_sandbox, "local")
DOCKER: Open = partial(_sandbox, "docker")
PEERS: Mapping[str, tuple[str, Open, Open]] = {
    "python": ("python3 -I", LOCAL, _subprocess),
    "jupyter": (f"warm kernels of {_version('ipykernel')}", LOCAL, _jupyter),
    "llm-sandbox": (f"{_version('llm-sandbox')} with bubblewrap", LOCAL, _llm_sandbox),
    "exec": ("docker exec", DOCKER, _exec),
}
"""Name of the peer: its description, the sandbox that is compared with it, and the peer."""
