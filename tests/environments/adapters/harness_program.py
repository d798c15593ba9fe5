"""The program of verifiers' harness `null`, without uv, which verifiers installs it with."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch


@contextmanager
def installed_program() -> Iterator[None]:
    """Run the harness's program with this Python, which has the packages that it requests from uv."""
    from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
    from verifiers.v1.runtimes.subprocess import SubprocessRuntime

    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{hashlib.sha256(CHAT_PROGRAM_SOURCE.encode()).hexdigest()}.py"
        path.write_text(CHAT_PROGRAM_SOURCE, encoding="utf-8")
        with (
            patch.object(SubprocessRuntime, "scripts_dir", folder),
            patch.dict(SubprocessRuntime._interpreters, {str(path): sys.executable}),
        ):
            yield
