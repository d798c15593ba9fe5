"""The latency benchmark counts what it measures, and names what it cannot measure."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sandbox_latency.measurement import PROGRAMS, Measured, measure

ROOT = Path(__file__).parents[2]


async def test_a_run_counts_what_its_clients_ran() -> None:
    ran = 0

    async def slow(program: Measured) -> None:
        nonlocal ran
        assert program is PROGRAMS["trivial"]
        ran += 1
        await asyncio.sleep(0.02)

    found = await measure(slow, PROGRAMS["trivial"], 2, 0.2)
    assert found.others["programs"] == ran
    assert found.others["99 %, ms"] >= found.others["median, ms"] >= 20
    assert ran / 0.4 < found.rate <= 2 / 0.02


def test_programs_are_the_same_in_the_sandbox_and_a_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends unless every program printed what it should, so each peer did the same work."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    names = ["sandbox/jupyter/numpy/1", "sandbox/exec/trivial/1"]
    words = ["--pairs", "1", "--seconds", "0.05", "--json", str(tmp_path / "found.json"), "--only", *names]
    command = [sys.executable, "-m", "benchmarks.sandbox_latency", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads((tmp_path / "found.json").read_text())["results"]
    assert [one["name"] for one in found] == names[:1]
    assert all(one[side]["programs"] > 0 for one in found for side in ("own", "other"))
    assert all(one["own"]["rate"] < one["limit"]["rate"] for one in found)
    assert "not measured: sandbox/exec: " in done.stderr
