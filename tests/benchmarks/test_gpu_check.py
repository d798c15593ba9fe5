"""The check of training on a GPU: its driver, which ends, cuts and reports the steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_check import __main__ as check


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--output", str(folder), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_a_step_leaves_its_findings(tmp_path: Path) -> None:
    ran = run(tmp_path, "--only", "facts")
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "facts.json").read_text())
    assert found["a program"]["stdout"] == "42\n"
    assert found["versions"]["torch"]
    assert ran.stdout.splitlines()[-1].startswith("facts          done in ")


def test_no_step_begins_after_the_budget(tmp_path: Path) -> None:
    ran = run(tmp_path, "--only", "facts,kernels", "--budget", "0")
    assert ran.returncode == 1
    assert [line.split(maxsplit=1) for line in ran.stdout.splitlines()[-1:]] == [["kernels", "left out"]]


def test_an_unknown_step_is_one_line(tmp_path: Path) -> None:
    ran = run(tmp_path, "--only", "facts,speed")
    assert ran.returncode == 2
    assert "no step 'speed': there are facts, numerics" in ran.stderr.splitlines()[-1]


def test_a_step_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(check.LIMITS, "facts", 0.2)
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--output", str(tmp_path), "--only", "facts"])
    assert check.main() == 1
    assert "ended after its 0.2 s" in capsys.readouterr().out
