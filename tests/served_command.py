"""Run a `tirjudge` command that serves, as a separate process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from types import TracebackType
from typing import Self

import pytest

from tests.command import TIRJUDGE


class ServedCommand:
    """The command on a free port, ready once it printed its URL; leaving the context kills it."""

    def __init__(self, *words: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [TIRJUDGE, *words, "--port", "0"],
            stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
        )  # fmt: skip
        assert self.process.stderr is not None
        # Loading a model may print its progress before that line.
        lines = iter(self.process.stderr.readline, "")
        self.greeting = next((line for line in lines if line.startswith("tirjudge ")), "")
        found = re.search(r"http://\S+", self.greeting)
        if found is None:
            self.process.kill()
            pytest.fail(self.greeting + self.process.communicate()[1])
        self.url = found[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, str]:
        """Stop the command; return its exit code and its last output."""
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said
