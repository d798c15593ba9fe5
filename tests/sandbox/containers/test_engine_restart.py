"""A restart of the Docker engine costs one program and nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tirjudge_sandbox import Program, Status
from tirjudge_sandbox.containers import client
from tirjudge_sandbox.containers.client import LABEL
from tirjudge_sandbox.containers.docker import DockerSandbox

pytestmark = [
    pytest.mark.alone,
    pytest.mark.docker,
    # The SDK leaves a socket open when the engine does not answer, and the engine outlives this process.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.skipif(
        "TIRJUDGE_MAY_RESTART_ENGINE" not in os.environ,
        reason="TIRJUDGE_MAY_RESTART_ENGINE is not set: it kills the engine and starts it again",
    ),
]


class Daemon:
    """The engine's process, identified by the process that answers at its socket."""

    def __init__(self) -> None:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(os.environ["DOCKER_HOST"].removeprefix("unix://"))
            peer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self._pid = struct.unpack("iII", peer)[0]
        self._command = Path(f"/proc/{self._pid}/cmdline").read_text().split("\0")[:-1]

    def end(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)
        while self._alive():
            time.sleep(0.05)
        # Without an init process that reaps zombies, the engine would take its predecessor for running.
        for path in (self._option("--pidfile"), f"{self._option('--exec-root')}/containerd/containerd.pid"):
            Path(path).unlink(missing_ok=True)

    def start(self) -> None:
        if self._alive():
            return
        # Not a child of this process: other tests count its children.
        subprocess.run(
            ["setsid", "--fork", *self._command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        for _ in range(600):
            try:
                client.call(lambda docker: docker.ping())
            except client.EngineFailed:
                time.sleep(0.1)
            else:
                self.__init__()
                return
        pytest.fail("the engine did not come back")

    def _option(self, name: str) -> str:
        return self._command[self._command.index(name) + 1]

    def _alive(self) -> bool:
        try:
            return Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except FileNotFoundError:
            return False


@pytest.fixture
def daemon(docker_image: str) -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.start()
    gc.collect()


QUICK = Program(source="print('ran')")


async def test_an_engine_that_is_stopped_and_started(daemon):
    async with DockerSandbox(capacity=1, preload=()) as box:
        running = asyncio.ensure_future(box.run(Program(source="import time; time.sleep(60)")))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(daemon.end, signal.SIGTERM)
        lost = await running
        assert (lost.status, "lost" in lost.detail) == (Status.SANDBOX_FAILED, True)
        refused = await box.run(QUICK)
        assert refused.status is Status.SANDBOX_FAILED
        assert "cannot be reached" in refused.detail
        await asyncio.to_thread(daemon.start)
        assert (await box.run(QUICK)).stdout == "ran\n"
    assert ours() == []


async def test_an_engine_that_is_killed(daemon):
    async with DockerSandbox(capacity=1, preload=()) as box:
        await asyncio.to_thread(daemon.end, signal.SIGKILL)
        # Containers keep running without the engine until it returns and ends those that it finds.
        assert (await box.run(QUICK)).stdout == "ran\n"
        await asyncio.to_thread(daemon.start)
        assert (await box.run(QUICK)).stdout == "ran\n"
    assert ours() == []


def ours() -> list[str]:
    """Return the names of this process's containers."""
    filters = {"label": f"{LABEL}={os.getpid()}"}
    found = client.call(lambda docker: docker.containers.list(all=True, filters=filters))
    return [container.name for container in found]
