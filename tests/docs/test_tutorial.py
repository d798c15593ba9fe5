"""The tutorial runs from its first command to its decision, with the embedded model over one of its rows."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.blocks import ROOT, blocks, commands
from tirjudge.cli import app

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "tutorial.md"


def test_the_tutorial_ends_with_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    steps = [
        command for block in blocks((PAGE,)) for command in commands(block) if command.startswith("tirjudge ")
    ]
    assert [step.split()[1] for step in steps] == ["judge", "show", "show", "reproduce", "report"]
    for step in steps:
        more = (
            ["--limit", "1", "--generator-option", "processes=1"] if step.startswith("tirjudge judge") else []
        )
        done = CliRunner().invoke(app, [*shlex.split(step)[1:], *more])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "report.html").exists()
    (decision,) = [block.code for block in blocks((PAGE,)) if block.language == "python"]
    exec(compile(decision, PAGE.name, "exec"), {})
    assert "B wins 0 of 1" in capsys.readouterr().out
