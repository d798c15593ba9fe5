"""An evaluation killed at random moments, compared with an uninterrupted one.

The two must have the same verdicts, without one that is lost or made twice.

    OMP_NUM_THREADS=1 python -m benchmarks.eval_kill_cycles             # ten kills of the miniature
    OMP_NUM_THREADS=1 python -m benchmarks.eval_kill_cycles --model DIR --rows 60

Both runs are `tirjudge eval ifbench-agentrm`. A kill is a SIGKILL after a random number of rows. The cache of
answers is off, so that the model judges every row. Prints the differences, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from examples.miniature import TRAINED
from tests.command import TIRJUDGE
from tirjudge.storage.json_lines import read_lines

DATA = Path(os.environ.get("TIRJUDGE_BENCHMARK_DATA", Path(__file__).parents[2] / "shared" / "benchmarks"))
ROWS = DATA / "ifbench" / "agentrm-ifbench-444.json"
TIMES = ("seconds", "wall_seconds", "cpu_seconds")
"""Fields that differ between any two runs."""


def start(output: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start the evaluation, or resume it, as a process of its own."""
    command = [TIRJUDGE, "eval", "ifbench-agentrm", "--no-cache"]
    command += ["--data", str(ROWS), "--limit", str(options.rows), "--max-tokens", str(options.max_tokens)]
    command += ["--output", str(output), "--model", options.model, "--concurrency", str(options.concurrency)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def lines(path: Path) -> int:
    """Return the number of complete lines of a file; 0 if it does not exist."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def killed(output: Path, options: argparse.Namespace, rows: int, delay: float) -> int:
    """Kill a run `delay` seconds after it has judged `rows` rows in all; return the rows on disk."""
    process = start(output, options)
    while process.poll() is None:
        if lines(output) >= rows:
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    process.wait()
    return lines(output)


def timeless(value: Any) -> Any:
    """Return a result row without its timings."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in TIMES}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def differences(whole: Path, resumed: Path) -> list[str]:
    """Describe each row that was judged twice, is missing, is extra or has another verdict."""
    first = {row["id"]: timeless(row) for row in read_lines(whole)}
    ids = [row["id"] for row in read_lines(resumed)]
    second = {row["id"]: timeless(row) for row in read_lines(resumed)}
    found = [f"{name}: judged twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    found += [f"{name}: lost" for name in sorted(first.keys() - second.keys())]
    found += [f"{name}: not in the uninterrupted run" for name in sorted(second.keys() - first.keys())]
    common = sorted(first.keys() & second.keys())
    return found + [f"{name}: a different verdict" for name in common if first[name] != second[name]]


def main() -> int:
    """Run both evaluations and print how they differ; return 1 if they do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="number of kills")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments of the kills")
    parser.add_argument("--rows", type=int, default=444, help="rows of the benchmark")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--model", default=str(TRAINED), help="a model folder; the default is the miniature")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        whole, resumed = Path(name) / "whole.jsonl", Path(name) / "resumed.jsonl"
        began = time.perf_counter()
        assert start(whole, options).wait() == 0
        seconds = time.perf_counter() - began
        print(f"uninterrupted: {lines(whole)} verdicts in {seconds:.0f} s", flush=True)
        for number, place in enumerate(sorted(rng.sample(range(lines(whole) - 1), options.kills)), 1):
            judged = killed(resumed, options, place, rng.random())
            print(f"kill {number}: {judged} verdicts", flush=True)
        assert start(resumed, options).wait() == 0
        found = differences(whole, resumed)
        print("\n".join(found) or f"the same {lines(resumed)} verdicts, none of them twice and none lost")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
