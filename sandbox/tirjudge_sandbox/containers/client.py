"""Calls of the Docker engine: each over its own connection, with one-line errors, blocking or in a thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from tirjudge_sandbox.base import SandboxUnavailable

Result = TypeVar("Result")

_SECONDS = 60
"""The longest silence of the engine before a call fails."""


class EngineFailed(RuntimeError):
    """The engine cannot be reached, or it refused a call."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status
        """The HTTP status of the engine's answer, None if there was no answer."""


def call(action: Callable[[Any], Result], seconds: int = _SECONDS) -> Result:
    """Call `action` with a `docker.DockerClient` that is configured by DOCKER_HOST and its related variables.

    The connection lives for this call alone, so a restart of the engine between two calls does no harm.
    `seconds`: the longest wait for an answer. Raises EngineFailed, and SandboxUnavailable if the docker SDK
    is not installed.
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
    """Run `call` in a thread. Cancelling this waits for the engine's answer before it propagates."""
    answer = asyncio.ensure_future(asyncio.to_thread(call, action))
    try:
        return await asyncio.shield(answer)
    except asyncio.CancelledError:
        # The engine carries the call out anyway, and clean-up must come after it.
        await asyncio.wait([answer])
        raise
