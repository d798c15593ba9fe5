"""The notebook of the documentation runs, with the real sandbox and the embedded model's recorded turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

NOTEBOOK = ROOT / "docs" / "judging-ten-rows.ipynb"
RECORDED = [ROOT / "examples" / "instructions.verdicts.jsonl", ROOT / "tests/docs/short-words.verdicts.jsonl"]
"""The verdicts on the ten rows, and those on the question that the notebook adds."""
STARTUP = f"""
import sys

sys.path.insert(0, {str(ROOT)!r})
from tests.docs.recorded_turns import replay

replay({[str(file) for file in RECORDED]!r})
"""
"""Start-up code of the notebook's kernel, which replays recorded turns instead of loading a model."""


def run(folder: Path, startup: str) -> subprocess.CompletedProcess[str]:
    start = folder / "profile_default" / "startup"
    start.mkdir(parents=True)
    (start / "00.py").write_text(startup)
    command = [sys.executable, "-m", "pytest", "--nbmake", "--nbmake-timeout=600", "--override-ini=addopts="]
    environment = {**os.environ, "IPYTHONDIR": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "-q", "-p", "no:schemathesis", "-W", "default", str(NOTEBOOK)],
        cwd=ROOT, env=environment, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_notebook_runs_with_recorded_turns(tmp_path: Path) -> None:
    done = run(tmp_path, STARTUP)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.soak
def test_the_notebook_runs_with_the_embedded_model(tmp_path: Path) -> None:
    done = run(tmp_path, "")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_notebook_is_committed_clean() -> None:
    """No error, no count of executions and no path of a machine."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {cell["execution_count"] for cell in code} == {None}
    assert not [output for output in outputs if output["output_type"] == "error"]
    text = json.dumps(outputs)
    assert len(text) < 20_000
    assert str(Path.home()) not in text
    assert "stderr" not in text
