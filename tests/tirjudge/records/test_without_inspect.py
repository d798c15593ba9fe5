"""`tirjudge export inspect` without the extra that it needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tirjudge.cli import app

VERDICTS = "examples/instructions.verdicts.jsonl"


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in {"inspect_ai", *(name for name in sys.modules if name.startswith("inspect_ai."))}:
        monkeypatch.setitem(sys.modules, module, None)
    run = CliRunner().invoke(app, ["export", "inspect", VERDICTS, "-o", str(tmp_path / "out")])
    assert run.exit_code == 2
    assert "pip install 'tirjudge[inspect]'" in run.stderr
    assert not (tmp_path / "out").exists()
