"""Run the real vLLM server on a CPU, as a separate process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

START = 420.0
"""Seconds that the server has to come up."""
HEAD = 32
"""The smallest width of a head that vLLM's kernels for a CPU take."""


@contextmanager
def serving(
    folder: Path, *words: str, port: int | None = None, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Serve the model in `folder`, yield the process and its URL once it is up, and kill it afterwards."""
    port = port or _free_port()
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--logprobs-mode", "processed_logprobs", *words]
    process = subprocess.Popen(command, env=os.environ | environment, start_new_session=True)
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}")
        yield process, f"http://127.0.0.1:{port}"
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the server and its engine, which would outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_until_up(process: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail("the server did not come up")
