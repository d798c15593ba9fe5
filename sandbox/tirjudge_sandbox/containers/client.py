"""The Docker engine: calls with one-line errors, and the containers that a process owns in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar

from tirjudge_sandbox.base import PackageMissing

Result = TypeVar("Result")

_SECONDS = 60
"""The longest silence of the engine before a call fails."""
_PREFIX = "tirjudge.owner."
LABEL = f"{_PREFIX}pid"
"""A label that every container of a sandbox has."""
SANDBOX = "tirjudge.sandbox.id"
"""A further label of every container, which tells the sandboxes of one process apart."""


class EngineFailed(RuntimeError):
    """The engine cannot be reached, or it refused a call."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status
        """The HTTP status of the engine's answer, None if there was no answer."""


def call(action: Callable[[Any], Result], seconds: int = _SECONDS) -> Result:
    """Call `action` with a `docker.DockerClient` that is configured by DOCKER_HOST and its related variables.

    The connection lives for this call alone, so a restart of the engine between two calls does no harm.
    `seconds`: the longest wait for an answer. Raises EngineFailed, and PackageMissing without the docker SDK.
    """
    try:
        import docker
        import requests
    except ImportError:
        raise PackageMissing(
            "the docker sandbox needs the docker SDK: pip install 'tirjudge[docker]'"
        ) from None
    try:
        with contextlib.closing(docker.from_env(timeout=seconds)) as client:
            return action(client)
    except docker.errors.APIError as error:
        raise EngineFailed(error.explanation or str(error), error.status_code) from error
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise EngineFailed(f"the Docker engine cannot be reached: {error}") from error


async def ask(action: Callable[[Any], Result]) -> Result:
    """Run `call` in a thread. Cancelling this waits for the engine's answer before it propagates."""
    answer = asyncio.ensure_future(asyncio.to_thread(call, action))
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        # The engine carries the call out anyway, and clean-up must come after it.
        await asyncio.wait([answer])
        raise


@dataclass(frozen=True)
class Owner:
    """Identity of a process, distinct from every other process that had or will have the same id."""

    pid: str
    started: str
    """Start time of the process, in clock ticks since the machine started."""
    boot: str
    """The kernel's id of the machine's current boot."""
    namespace: str
    """The PID namespace in which `pid` is valid."""

    @classmethod
    def current(cls) -> Self:
        """Return the identity of this process."""
        return cls(
            pid=str(os.getpid()),
            started=_started("self") or "",
            boot=_boot(),
            namespace=os.readlink("/proc/self/ns/pid"),
        )

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self:
        """Return the owner that the labels of a container name. Raises KeyError if a label is missing."""
        return cls(**{field.name: labels[_PREFIX + field.name] for field in fields(cls)})

    def labels(self) -> dict[str, str]:
        """Return the labels from which `of` restores this owner."""
        return {_PREFIX + name: value for name, value in asdict(self).items()}

    @property
    def dead(self) -> bool:
        """True only if the process has surely ended; processes of another PID namespace cannot be seen."""
        if self.boot != _boot():
            return True
        if self.namespace != os.readlink("/proc/self/ns/pid"):
            return False
        started = _started(self.pid)
        return _gone(self.pid) if started is None else started != self.started


def remove_orphans(docker: Any) -> None:
    """Remove the containers of processes that have surely ended. Raises docker's errors."""
    _remove(docker, LABEL, lambda labels: Owner.of(labels).dead)


def remove_all(docker: Any, sandbox: str) -> None:
    """Remove every container of one sandbox. Raises docker's errors."""
    _remove(docker, f"{SANDBOX}={sandbox}", lambda _: True)


def _remove(docker: Any, label: str, unused: Callable[[Mapping[str, str]], bool]) -> None:
    from docker.errors import APIError

    # Not `containers.list`, which asks for the details of each container, and fails if one is removed
    # meanwhile.
    for found in docker.api.containers(all=True, filters={"label": label}):
        if unused(found["Labels"]):
            # Another process may be removing it too.
            with contextlib.suppress(APIError):
                docker.api.remove_container(found["Id"], force=True)


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: str) -> str | None:
    """Return field 22 of /proc/PID/stat (proc(5)); empty for a zombie, None if it cannot be read."""
    try:
        # The second field is the name in parentheses, which may hold anything, spaces and parentheses
        # included.
        after_name = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return None
    return "" if after_name[0] in "ZX" else after_name[19]


def _gone(pid: str) -> bool:
    """Return True if no process has this id, also where /proc hides processes of other users (hidepid)."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
