"""The command `tirjudge train` in this process."""

from __future__ import annotations

from typer.testing import Result

from tests.tirjudge.judge_command import command


def train(*words: object, code: int | None = None) -> Result:
    """Train; `code` is the exit code that the command must end with."""
    return command("train", *words, code=code)
