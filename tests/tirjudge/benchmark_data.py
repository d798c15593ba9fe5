"""Find the real benchmark files, if this machine has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(
    os.environ.get("TIRJUDGE_BENCHMARK_DATA", Path(__file__).parents[2] / ".." / "shared" / "benchmarks")
)


def benchmark_file(name: str) -> Path:
    """Return the path of a benchmark file; skip the test if it is missing."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no benchmark data at {path}; set TIRJUDGE_BENCHMARK_DATA")
    return path
