"""The short form of the soak test: the script in `benchmarks`, run as the documentation says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_four_hundred_programs_leave_nothing_behind():
    command = [sys.executable, "-m", "benchmarks.sandbox_soak", "--programs", "400", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 anomalies" in done.stdout
