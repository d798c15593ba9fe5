"""A container as one worker: create it hardened, connect to it, and remove it when the worker ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tirjudge_sandbox.base import Isolation
from tirjudge_sandbox.containers import client
from tirjudge_sandbox.guest import syscalls
from tirjudge_sandbox.guest.launcher import CONTROL
from tirjudge_sandbox.guest.limits import WorkingFolder
from tirjudge_sandbox.guest.settings import Preparation
from tirjudge_sandbox.prepared import Prepared
from tirjudge_sandbox.workers import host, interpreter
from tirjudge_sandbox.workers.worker import START_SECONDS, Worker, WorkerFailed, send_prepared, until_ready

_UIDS = range(40_000, 60_000)
"""User ids of containers: below 65,536, to exist where the engine remaps users, and above people's ids."""
_MOST_PROCESSES = 128
_CONFLICT = 409
"""The HTTP status for a container name that is taken."""
_POLL_SECONDS = 0.5
"""Interval of checks that a container that has not connected still runs."""

_PREPARATION_CALLS = (
    "connect",
    "execve",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "seccomp",
    "socket",
)
"""System calls that a worker makes before it filters itself."""
_NEW_NAMESPACES = 0x7E02_0000
_ARCHITECTURES = {"x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"], "aarch64": ["SCMP_ARCH_AARCH64"]}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The options that all containers of one sandbox share."""

    sandbox: str
    """Id of the sandbox within this process."""
    image: str
    """Id of the image and not a tag, so that moving the tag changes nothing."""
    runtime: str | None
    memory_bytes: int
    """Memory of interpreter, program and working folder together, without swap."""
    cpus: float
    preparation: Preparation
    prepared: Prepared | None


async def start(shape: Shape, working_folder: WorkingFolder) -> Worker:
    """Create a container and wait until its worker is warm. Raises WorkerFailed."""
    container = _Container(shape, working_folder)
    try:
        control, isolation = await container.ready()
    except BaseException as error:
        await container.end()
        if isinstance(error, TimeoutError):
            raise WorkerFailed(f"its container was not ready after {START_SECONDS:.0f} s") from None
        if isinstance(error, client.EngineFailed | OSError):
            raise WorkerFailed(str(error)) from error
        raise
    return Worker(control, isolation, working_folder, container.end)


class _Container:
    """One container, from its creation to its removal."""

    def __init__(self, shape: Shape, working_folder: WorkingFolder):
        self._shape = shape
        self._working_folder = working_folder
        self._id: str | None = None

    async def ready(self) -> tuple[socket.socket, Isolation]:
        """Start it and wait until its worker is warm; return the control socket and the measured isolation.

        Raises WorkerFailed, EngineFailed or OSError.
        """
        async with asyncio.timeout(START_SECONDS):
            with closing(host.TemporaryFolder()) as folder, _listener(folder.path) as listener:
                await client.ask(lambda docker: self._start(docker, listener.getsockname()))
                control = await self._connected(listener)
        prepared = self._shape.prepared
        try:
            if prepared is not None:
                await send_prepared(control, prepared)
            properties = await until_ready(control, prepared)
            if properties is None:
                raise WorkerFailed("its container ended without a message")
        except BaseException:
            control.close()
            raise
        return control, host.isolation("container", properties)

    async def end(self) -> None:
        """Remove the container and everything that runs in it."""
        if self._id is None:
            return
        # Failures are harmless: an engine that is down stops its containers when it comes back, and a worker
        # whose control socket is closed ends by itself. The rest is removed when the sandbox closes.
        with contextlib.suppress(client.EngineFailed):
            await client.ask(lambda docker: docker.api.remove_container(self._id, force=True))

    async def _connected(self, listener: socket.socket) -> socket.socket:
        """Wait for the container to connect.

        Raises WorkerFailed with its last line if it ends before that.
        """
        while True:
            try:
                async with asyncio.timeout(_POLL_SECONDS):
                    await host.readable(listener.fileno())
            except TimeoutError:
                if (line := await client.ask(self._last_line)) is not None:
                    reason = line or "it gave no reason"
                    raise WorkerFailed(f"its container ended at once: {reason}") from None
            else:
                # Not with the loop's `sock_accept`: a connection that it has accepted when this call is
                # cancelled would belong to nobody and stay open.
                control, _ = listener.accept()
                control.setblocking(False)
                return control

    def _last_line(self, docker: Any) -> str | None:
        """Return the last line that the container wrote; None while it runs."""
        container = docker.containers.get(self._id)
        if container.status != "exited":
            return None
        lines = container.logs(tail=1).decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _start(self, docker: Any, address: str) -> None:
        container = self._create(docker, address)
        self._id = container.id
        container.start()

    def _create(self, docker: Any, address: str) -> Any:
        from docker.errors import APIError

        while True:
            uid = secrets.choice(_UIDS)
            try:
                return docker.containers.create(**_hardened(self._shape, self._working_folder, uid, address))
            except APIError as error:
                # The name is taken, and with it the uid: draw another.
                if error.status_code != _CONFLICT:
                    raise


def _hardened(shape: Shape, working_folder: WorkingFolder, uid: int, address: str) -> dict[str, Any]:
    """Return the keyword arguments of the SDK's `containers.create`."""
    from docker.types import LogConfig, Mount

    return {
        "image": shape.image,
        "runtime": shape.runtime,
        "name": f"tirjudge-{uid}",
        "labels": {**client.Owner.current().labels(), client.SANDBOX: shape.sandbox},
        "hostname": "sandbox",
        "entrypoint": [],
        "command": interpreter.contained_command(shape.preparation, working_folder),
        "environment": {},
        "user": f"{uid}:{uid}",
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": [
            "no-new-privileges:true",
            f"seccomp={seccomp_profile(unix_sockets=shape.preparation.unix_sockets)}",
        ],
        "pids_limit": _MOST_PROCESSES,
        "mem_limit": shape.memory_bytes,
        # Docker counts memory and swap together here, so an equal limit leaves no swap.
        "memswap_limit": shape.memory_bytes,
        "nano_cpus": int(shape.cpus * 1e9),
        "ipc_mode": "none",
        "tmpfs": {"/tmp": f"noexec,nosuid,nodev,{working_folder.mount_options()},uid={uid},gid={uid}"},
        "mounts": [Mount(target=CONTROL, source=address, type="bind", read_only=True)],
        # The supervisor must be PID 1. An init process would collect its children, and programs could signal
        # it.
        "init": False,
        # PID 1 ignores SIGTERM, which an engine that shuts down would send first.
        "stop_signal": "SIGKILL",
        # Holds only the reason for a failed start: a warm worker has no standard output any more.
        "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": "64k"}),
    }


def _listener(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setblocking(False)
    listener.bind(str(folder / "control"))
    # The folder is closed to other users. The container, with its own uid, gets this one file.
    os.chmod(listener.getsockname(), 0o666)
    listener.listen(1)
    return listener


def seccomp_profile(*, unix_sockets: bool = False) -> str:
    """Return the container's seccomp profile, as JSON for `docker run --security-opt seccomp=`.

    It is a second filter around the worker's own: it allows the calls of programs, without the worker's finer
    rules on arguments, and those with which a worker prepares. It therefore holds even for a worker that was
    taken over before it filtered itself. `unix_sockets`: as in the worker's own filter, which restricts their
    kind. Raises OSError for an unknown architecture.
    """
    names = set(syscalls.allowed()) - {"clone", "clone3"} | set(_PREPARATION_CALLS)
    if unix_sockets:
        names |= set(syscalls.unix_sockets())
    no_namespaces = {"index": 0, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": _ARCHITECTURES[syscalls.machine()],
            "syscalls": [
                {"names": sorted(names), "action": "SCMP_ACT_ALLOW"},
                {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [no_namespaces]},
                # ENOSYS makes the C library fall back to clone, whose flags a filter can read.
                {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
            ],
        }
    )
