"""`tirjudge` as it is typed in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
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
