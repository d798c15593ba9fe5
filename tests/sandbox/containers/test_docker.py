"""Containers: their hardening as the engine and the kernel report it, their replacement and removal."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.sandbox.targets import HOARDERS
from tirjudge_sandbox import Limits, Program, SandboxUnavailable, Status
from tirjudge_sandbox.containers import client, container, image
from tirjudge_sandbox.containers.client import LABEL
from tirjudge_sandbox.containers.docker import DockerSandbox

pytestmark = [
    pytest.mark.docker,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("docker_image"),
]

SLOW = Program(source="import time; print('began', flush=True); time.sleep(60)")
QUICK = Program(source="print('ran')")


def owned_by(pid: int, state: str | None = None) -> list[Any]:
    """Return the containers of the process `pid`."""
    filters = {"label": f"{LABEL}={pid}", **({"status": state} if state else {})}
    return client.call(lambda docker: docker.containers.list(all=True, filters=filters, ignore_removed=True))


def ours() -> list[Any]:
    return owned_by(os.getpid())


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    while not condition():  # noqa: ASYNC110 - the engine is another process
        await asyncio.sleep(0.05)


async def running(box: DockerSandbox) -> asyncio.Future[Any]:
    """Start a program that takes 60 seconds, and wait until it runs."""
    task = asyncio.ensure_future(box.run(SLOW))
    await until(lambda: any(len(container.top()["Processes"]) > 1 for container in ours()))
    return task


@pytest_asyncio.fixture(loop_scope="module")
async def box() -> AsyncIterator[DockerSandbox]:
    async with DockerSandbox(capacity=2, preload=()) as sandbox:
        yield sandbox
    assert ours() == []


async def test_hardening_as_the_engine_reports_it(box, docker_image):
    (container,) = ours()
    host, config = container.attrs["HostConfig"], container.attrs["Config"]
    uid, gid = map(int, config["User"].split(":"))
    assert uid == gid >= 40_000
    assert container.attrs["Image"] == docker_image
    assert host["NetworkMode"] == "none"
    assert host["IpcMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], None, False)
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert any(
        option.startswith('seccomp={"defaultAction": "SCMP_ACT_ERRNO"') for option in host["SecurityOpt"]
    )
    assert host["PidsLimit"] == 128
    assert host["Memory"] == host["MemorySwap"] == 1 << 30
    assert host["NanoCpus"] == 10**9
    assert host["Init"] is False
    assert set(host["Tmpfs"]) == {"/tmp"}
    assert {"noexec", "nosuid", "nodev", f"size={16 << 20}"} <= set(host["Tmpfs"]["/tmp"].split(","))
    assert [(mount["Destination"], mount["RW"]) for mount in container.attrs["Mounts"]] == [
        ("/control", False)
    ]


async def test_hardening_as_the_kernel_reports_it_inside(box):
    (container,) = ours()
    show = "cat /proc/1/status /proc/self/mounts; ls /sys/class/net; cat /proc/1/comm"
    _, output = client.call(
        lambda docker: docker.containers.get(container.id).exec_run(["sh", "-c", show], user="0")
    )
    lines = [" ".join(line.split()) for line in output.decode().splitlines()]
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}: 0000000000000000" in lines
    assert {"NoNewPrivs: 1", "Seccomp: 2"} <= set(lines)
    # Two seccomp filters apply: the engine's and the worker's.
    assert any(line.startswith("Seccomp_filters:") and int(line.split()[1]) >= 2 for line in lines)
    uid = container.attrs["Config"]["User"].split(":")[0]
    assert f"Uid: {uid} {uid} {uid} {uid}" in lines
    root = next(line for line in lines if line.split()[1:2] == ["/"])
    assert root.split()[3].split(",")[0] == "ro"
    assert "lo" in lines
    assert not any(line.startswith(("eth", "ens", "wl")) for line in lines)


async def test_each_container_has_a_uid_of_its_own(box):
    source = Program(source="import os, time; print(os.getuid()); time.sleep(0.5)")
    uids = {(await task).stdout for task in [asyncio.ensure_future(box.run(source)) for _ in range(2)]}
    assert len(uids) == 2


@pytest.mark.slow
async def test_a_uid_that_is_taken_is_not_taken_again(monkeypatch):
    drawn = iter([50_000, 50_000, 50_001])
    monkeypatch.setattr(secrets, "choice", lambda _: next(drawn))
    async with DockerSandbox(capacity=1, preload=()), DockerSandbox(capacity=1, preload=()):
        assert {found.attrs["Config"]["User"] for found in ours()} == {"50000:50000", "50001:50001"}


async def test_exceeding_the_container_memory_is_not_reported_as_a_signal():
    async with DockerSandbox(capacity=1, preload=(), memory_bytes=96 << 20) as sandbox:
        execution = await sandbox.run(Program(source="x = bytearray(200 << 20)"))
        assert (execution.status, execution.signal) == (Status.MEMORY_LIMIT, 9)
        assert (await sandbox.run(QUICK)).stdout == "ran\n"
        killed = await sandbox.run(Program(source="import os; os.kill(os.getpid(), 9)"))
        assert (killed.status, killed.signal) == (Status.SIGNAL, 9)


@pytest.mark.slow
async def test_no_program_can_have_the_worker_killed_for_memory():
    async with DockerSandbox(capacity=1, preload=(), memory_bytes=96 << 20) as sandbox:
        limits = Limits(processes=24, wall_seconds=20)
        for _ in range(4):
            assert (await sandbox.run(Program(source=HOARDERS), limits)).status is Status.MEMORY_LIMIT
            assert (await sandbox.run(QUICK)).stdout == "ran\n"
        assert sandbox.stats().lost == 0


@pytest.mark.slow
async def test_installed_packages_are_those_of_the_lock(docker_image):
    lock = Path(image.__file__).with_name("requirements.lock").read_text()
    pinned = dict(line.split()[0].split("==") for line in lock.splitlines() if "==" in line)
    source = (
        f"from importlib.metadata import version\nprint({{name: version(name) for name in {list(pinned)}}})"
    )
    async with DockerSandbox(capacity=1) as sandbox:
        execution = await sandbox.run(Program(source=source))
    assert execution.stdout == f"{pinned}\n"


@pytest.mark.slow
async def test_a_container_killed_mid_run_costs_one_program(box):
    lost = await running(box)
    (container,) = ours()
    kept = asyncio.ensure_future(box.run(Program(source="import time; time.sleep(1); print('kept')")))
    client.call(lambda docker: docker.api.kill(container.id))
    assert (await lost).status is Status.SANDBOX_FAILED
    assert "lost" in (await lost).detail
    assert (await kept).stdout == "kept\n"
    assert (await box.run(QUICK)).stdout == "ran\n"


TRAINER = """
import asyncio, sys
from tirjudge_sandbox import Program
from tirjudge_sandbox.containers.docker import DockerSandbox

async def main():
    async with DockerSandbox(capacity=1, preload=()) as box:
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


def trainer() -> subprocess.Popen[str]:
    """Start another process that owns a container."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.slow
async def test_a_dead_trainers_containers_are_removed_and_a_living_ones_left_alone():
    with trainer() as dead, trainer() as alive:
        dead.kill()
        dead.wait()
        # Its control socket is closed, so nothing runs in the container any more, but it still exists.
        await until(lambda: not owned_by(dead.pid, "running"))
        assert len(owned_by(dead.pid)) == len(owned_by(alive.pid, "running")) == 1
        async with DockerSandbox(capacity=1, preload=()):
            assert owned_by(dead.pid) == []
            assert len(owned_by(alive.pid, "running")) == 1
        alive.communicate("")
        assert (alive.returncode, owned_by(alive.pid)) == (0, [])


@pytest.fixture
def derive(docker_image: str) -> Iterator[Callable[[str], str]]:
    """Build an image from the sandbox's image with one more instruction, and return its id.

    The image is found and removed by a name of its own: the SDK reads an id from the log of the
    build, which names the sandbox's image too.
    """
    built = []

    def build(instruction: str) -> str:
        content = io.BytesIO(f"FROM {docker_image}\n{instruction}\n".encode())
        name = f"tirjudge-sandbox-derived-{secrets.token_hex(8)}"
        client.call(
            lambda docker: docker.images.build(fileobj=content, tag=name, rm=True, network_mode="none"), 600
        )
        built.append(name)
        made: str = client.call(lambda docker: docker.images.get(name)).id
        assert made != docker_image
        return made

    yield build
    for name in built:
        client.call(lambda docker, name=name: docker.images.remove(name))


@pytest.mark.slow
async def test_a_derived_image_is_used_only_when_it_is_named(docker_image, derive):
    derived = derive("ENV DERIVED=1")
    async with DockerSandbox(capacity=1, preload=()):
        assert ours()[0].attrs["Image"] == docker_image
    async with DockerSandbox(capacity=1, preload=(), image=derived) as sandbox:
        assert ours()[0].attrs["Image"] == derived
        assert (await sandbox.run(QUICK)).stdout == "ran\n"


@pytest.mark.slow
async def test_the_error_quotes_a_container_that_ends_at_once(derive):
    broken = derive("USER 0\nRUN rm -r /python/sandbox/guest")
    with pytest.raises(SandboxUnavailable, match=r"ended at once: ModuleNotFoundError: [^\n]*guest'$"):
        await DockerSandbox(preload=(), image=broken).__aenter__()
    assert ours() == []


async def test_a_missing_image_of_this_version_is_reported(monkeypatch):
    monkeypatch.setattr(image, "digest", lambda: "0" * 64)
    with pytest.raises(SandboxUnavailable, match=r"^[^\n]* run `tirjudge sandbox build`$"):
        await DockerSandbox().__aenter__()


async def test_an_image_that_is_not_derived_from_the_sandbox_image_is_refused(docker_image):
    with pytest.raises(SandboxUnavailable, match="not derived from this version's"):
        await DockerSandbox(image="python:3.11-slim").__aenter__()
    with pytest.raises(SandboxUnavailable, match="has no image 'tirjudge-nowhere'"):
        await DockerSandbox(image="tirjudge-nowhere").__aenter__()


async def test_a_start_that_is_cancelled_leaves_no_connection_open(monkeypatch, tmp_path):
    # The worker connects while the engine is asked whether its container still runs.
    async def answer(_: object) -> None:
        worker.connect(listener.getsockname())
        for _ in range(5):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.sleep(0.1)

    monkeypatch.setattr(container, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(client, "ask", answer)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker,
        container._listener(tmp_path) as listener,
    ):
        starting = asyncio.ensure_future(container._Container(None, None)._connected(listener))
        with pytest.raises(asyncio.CancelledError):
            await starting
        starting = None
        gc.collect()
