"""A full training cycle killed at random moments, compared with an uninterrupted one.

Both must end with the same results and weights, and no finished stage may be repeated.

    OMP_NUM_THREADS=1 python -m benchmarks.kill_cycles

Both runs are `tirjudge train --iterative` from the miniature, at sizes that take about two minutes. A
kill is a SIGKILL up to a second after a progress line, which is chosen at random among those of an
uninterrupted run. Prints the differences, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from examples.miniature import TRAINED
from examples.miniature.__main__ import write_rows
from tests.command import TIRJUDGE
from tirjudge.storage.json_lines import read_lines

RECIPE = ["examples/miniature/recipes/mini.toml", "--control"]
SETTINGS: dict[str, Any] = {
    "model.base": str(TRAINED),
    "rl.steps": 4,
    "rl.groups": 4,
    "rl.samples": 4,
    "rl.micro_batch": 16,
    "rl.learning_rate": 1e-4,
    "rl.replacement_rounds": 1,
    "rl.checkpoint_every": 2,
    "rejection.prompts": 24,
    "sft.batch": 8,
    "sft.micro_batch": 8,
    "sft.learning_rate": 1e-4,
    "sft.checkpoint_every": 1,
    "validation.n": 8,
    "heldout.n": 8,
}
COUNTED = {"samples.jsonl": "index", "answers.jsonl": "index", "metrics.jsonl": "step"}
"""Files of a stage, with the field that must be different in each of their rows."""


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the run, or resume it, in a process that appends its progress to `log`."""
    with log.open("ab") as progress:
        return subprocess.Popen([TIRJUDGE, *words(folder)], stdout=subprocess.DEVNULL, stderr=progress)


def words(folder: Path) -> list[str]:
    """Return the command without its name."""
    command = ["train", "--iterative", "--recipe", *RECIPE, "--output", str(folder)]
    return command + [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]


def places(log: Path) -> list[str]:
    """Return the progress lines of a run without their times and numbers."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [re.sub(r"(step \d+ of \d+): .*", r"\1", line.split(" ", 1)[1]).split("; ")[0] for line in lines]


def killed(folder: Path, log: Path, order: list[str], place: int, delay: float) -> str | None:
    """Kill a run `delay` seconds after it reaches line number `place` of the uninterrupted run's `order`.

    Returns the last progress line; None if the run ended before that.
    """
    before, process = len(places(log)), start(folder, log)
    while process.poll() is None:
        if any(line in order and order.index(line) >= place for line in places(log)[before:]):
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.02)
    return None if process.wait() == 0 else places(log)[-1]


def finished(folder: Path) -> dict[str, int]:
    """Return the time at which each finished stage was finished, in nanoseconds."""
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/done.json")}


def differences(whole: Path, resumed: Path) -> list[str]:
    """Describe the stages whose results or weights differ; timings are ignored."""
    found = []
    for path in sorted(whole.glob("*/done.json")):
        other = resumed / path.relative_to(whole)
        if timeless(json.loads(path.read_text())) != timeless(json.loads(other.read_text())):
            found.append(f"{path.parent.name}: different results")
    for path in sorted(whole.glob("*/model/model.safetensors")):
        expected, found_weights = load_file(path), load_file(resumed / path.relative_to(whole))
        if any(not expected[name].equal(found_weights[name]) for name in expected):
            found.append(f"{path.parent.parent.name}: different weights")
    return found + repeated(resumed)


def repeated(folder: Path) -> list[str]:
    """Describe the files in which a row occurs twice."""
    found = []
    for name, number in COUNTED.items():
        for path in sorted(folder.glob(f"*/{name}")):
            numbers = [row[number] for row in read_lines(path)]
            if len(set(numbers)) < len(numbers):
                found.append(f"{path.relative_to(folder)}: rows twice")
    return found


def timeless(value: Any) -> Any:
    """Return a result without its timings."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if "seconds" not in key}
    return value


def main() -> int:
    """Run both cycles and print how they differ; return 1 if they do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="number of kills")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments of the kills")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_rows(root, train=200, heldout=8, seed=0)
        SETTINGS.update({"data.train": root / "train.jsonl", "data.heldout": root / "heldout.jsonl"})
        began = time.perf_counter()
        assert start(root / "whole", root / "whole.log").wait() == 0, (root / "whole.log").read_text()
        seconds, order = time.perf_counter() - began, places(root / "whole.log")
        print(f"uninterrupted: {seconds:.0f} s, {len(finished(root / 'whole'))} stages", flush=True)
        done: dict[str, int] = {}
        changed = set()
        for place in sorted(rng.sample(range(len(order)), options.kills)):
            line = killed(root / "resumed", root / "resumed.log", order, place, rng.random())
            now = finished(root / "resumed")
            changed |= {stage for stage, time in done.items() if now[stage] != time}
            done = now
            print(f"killed, with {len(done)} stages done, after: {line}", flush=True)
        assert start(root / "resumed", root / "resumed.log").wait() == 0, (root / "resumed.log").read_text()
        found = differences(root / "whole", root / "resumed")
        found += [f"{stage}: done twice" for stage in sorted(changed)]
    print("\n".join(found) or "the same results and weights in every stage; no stage was repeated")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
