"""Run the `tirjudge` command as a shell does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TIRJUDGE = str(Path(sys.executable).with_name("tirjudge"))
"""The installed console script."""


def tirjudge(
    *words: str, folder: Path | None = None, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in `folder`; `environment` is added to this process's environment."""
    return subprocess.run(
        [TIRJUDGE, *words],
        cwd=folder,
        input=stdin,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def kill_at(
    process: subprocess.Popen[bytes],
    file: Path,
    lines: int,
    pause: Callable[[], float],
    within: float = 120,
) -> None:
    """Kill the process once the file has `lines` lines; `pause` gives the seconds between two checks."""
    deadline = time.monotonic() + within
    while not file.exists() or file.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(pause())
    process.kill()
    process.communicate()
