"""`tirjudge` as it is typed in a shell."""

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
    """Run to its end in `folder`; `environment` is set beside ours."""
    return subprocess.run(
        [TIRJUDGE, *words],
        cwd=folder,
        input=stdin,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def kill_at(process: subprocess.Popen[bytes], file: Path, lines: int, pause: Callable[[], float]) -> None:
    """SIGKILL once the file has so many lines; `pause` draws the seconds between two looks."""
    deadline = time.monotonic() + 120
    while not file.exists() or file.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(pause())
    process.kill()
    process.communicate()
