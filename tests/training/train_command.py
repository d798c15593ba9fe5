"""The command `tirjudge train` in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from tirjudge.cli import app


def train(*words: str) -> Result:
    return CliRunner().invoke(app, ["train", *words])
