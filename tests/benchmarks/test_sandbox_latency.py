"""The latency benchmark counts what it measures, and names what it cannot measure."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.sandbox_latency.measurement import fork_seconds, measure
from tests.command import tirjudge

ROOT = Path(__file__).parents[2]


async def test_measure_counts_what_each_way_ran():
    ran = {"slow": 0, "quick": 0}

    async def slow() -> None:
        ran["slow"] += 1
        await asyncio.sleep(0.02)

    async def quick() -> None:
        ran["quick"] += 1
        await asyncio.sleep(0.002)

    found = {
        (one.way, one.clients): one for one in await measure({"slow": slow, "quick": quick}, (1, 2), 0.4)
    }
    assert set(found) == {("slow", 1), ("quick", 1), ("slow", 2), ("quick", 2)}
    for way, count in ran.items():
        # Two ran before, to warm up.
        assert found[way, 1].programs + found[way, 2].programs == count - 2
    assert found["slow", 1].median_seconds >= 0.02
    assert found["slow", 1].p99_seconds >= found["slow", 1].median_seconds
    assert found["slow", 1].programs_per_second <= 50


def test_the_command_prints_numbers_for_a_machine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    command = [sys.executable, "-m", "benchmarks.sandbox_latency", "--seconds", "0.2", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    ways = [(one["way"], one["clients"]) for one in found["measurements"]]
    assert ways == [(way, clients) for clients in (1, 2, 4) for way in ("local", "python3 -I")]
    assert all(one["programs"] > 0 for one in found["measurements"])
    assert "not measured: docker: " in done.stderr


@pytest.mark.skipif(fork_seconds() is None, reason="needs a C compiler")
def test_a_bare_fork_takes_time():
    assert fork_seconds() > 0


def test_the_removed_command_names_the_new_one():
    done = tirjudge("sandbox", "bench", "--seconds", "5", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tirjudge sandbox: bench was removed; in a clone, run: python -m benchmarks.sandbox_latency\n"
    )
