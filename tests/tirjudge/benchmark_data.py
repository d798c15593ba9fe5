"""A published row of each benchmark, and the real files, if this machine has them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

DATA = Path(
    os.environ.get("TIRJUDGE_BENCHMARK_DATA", Path(__file__).parents[2] / ".." / "shared" / "benchmarks")
)


_ROWS = json.loads(Path(__file__).with_name("evaluation").joinpath("benchmark_rows.json").read_text())
EXAMPLES = {name: one["row"] for name, one in _ROWS.items()}
"""A row of each benchmark in its published columns, by the benchmark's name."""
BECOMES = {name: one["becomes"] for name, one in _ROWS.items() if "becomes" in one}
"""The tasks that some of these rows become, written by hand."""


def benchmark_file(name: str) -> Path:
    """Return the path of a benchmark file; skip the test if it is missing."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no benchmark data at {path}; set TIRJUDGE_BENCHMARK_DATA")
    return path
