"""The Docker engine: every call in a thread and over a connection of its own, every failure in one line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from tirjudge_sandbox.base import SandboxUnavailable

Result = TypeVar("Result")

_SECONDS = 60


class EngineFailed(RuntimeError):
    """The engine cannot be reached, or refused; `status` is its HTTP status, None without an answer."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status


def call(action: Callable[[Any], Result], seconds: int = _SECONDS) -> Result:
    """Give `action` a `docker.DockerClient`, as DOCKER_HOST and its kin say.

    A connection lives for one call, so an engine that was restarted in between is not noticed.
    Raises EngineFailed, and SandboxUnavailable where the docker SDK is not installed.
    """
    try:
        import docker
        import requests
    except ImportError:
        raise SandboxUnavailable(
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
    """`call` without blocking. Being cancelled, it waits for the answer all the same and then goes on."""
    answer = asyncio.ensure_future(asyncio.to_thread(call, action))
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        # What the engine is doing it does anyhow, and whoever cleans up must come after it.
        await asyncio.wait([answer])
        raise
