"""Workspaces judged by programs of a scripted model, and a hostile set.

    OMP_NUM_THREADS=1 python -m benchmarks.workspaces pairs --n 100 --seed 0
    OMP_NUM_THREADS=1 python -m benchmarks.workspaces hostile

`pairs` judges tables, JSON, modules and patches in both orders, with evidence, and then runs all programs
again from a copy of the result file, after the workspaces have been deleted. The model is a script behind an
endpoint: it knows what each prompt asks for, and believes its program's output. Its programs were written on
the pairs of seed 1.

`hostile` judges a right workspace beside each hostile one. The model is a script that takes any verdict,
output and heading in its prompt for real. A flip is a verdict that is not for the right workspace, and a leak
is the content of a file outside of the workspaces in a request, on a screen or in a file that was written.

`--output FOLDER` keeps the rows and the results. Both exit with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.workspaces import hostile
from benchmarks.workspaces.judge import turn
from benchmarks.workspaces.pairs import write_rows
from tests.tirjudge.endpoint_server import serving
from tests.tirjudge.judge_command import invoke, results
from tirjudge.statistics import Proportion


def judged_pairs(folder: Path, count: int, seed: int) -> int:
    """Judge the pairs, and run their programs again elsewhere; return the number of rows that went wrong."""
    write_rows(folder / "data", count, seed)
    with serving() as endpoint:
        endpoint.script = turn
        words = ("judge", "data/rows.jsonl", "--order", "both", "--output", "data/out.jsonl")
        words = (*words, "--base-url", endpoint.url, "--model", "scripted")
        run = invoke(*words, folder=folder)
        asked = len(endpoint.asked)
    assert run.returncode == 0, run.stderr
    rows = results(folder / "data" / "out.jsonl")
    right, decided, n = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        kind = row["domain"]
        n[kind] += 1
        right[kind] += row["correct"] == 1
        decided[kind] += row["decided"] is True
    print(f"{count} pairs, seed {seed}, both orders: {asked} requests")
    print("| kind | n | right | decided by a program |\n|---|---|---|---|")
    for kind in n:
        print(f"| {kind} | {n[kind]} | {right[kind]} | {decided[kind]} |")
    share = Proportion(right.total(), n.total())
    print(f"right {share}, of {count} pairs")
    missed = 2 * count - right.total() - decided.total()
    return missed + _reproduced(folder)


def _reproduced(folder: Path) -> int:
    """Run the programs again from a copy, without the workspaces; return the number that differs."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in ("out.jsonl", "out.jsonl.files"):
        shutil.move(folder / "data" / name, copy / name)
    shutil.rmtree(folder / "data")
    again = invoke("reproduce", "out.jsonl", folder=copy)
    print(again.stdout)
    programs = sum(
        one["kind"] == "program"
        for row in results(copy / "out.jsonl")
        for view in row["views"]
        for one in view["segments"]
    )
    same = re.search(r"^same +(\d+)$", again.stdout, re.MULTILINE)
    return programs - int(same[1] if same else 0)


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("pairs", "hostile"))
    parser.add_argument("--n", type=int, default=100, help="pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="keep rows and results here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.output or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        if given.part == "pairs":
            return int(judged_pairs(folder, given.n, given.seed) > 0)
        return int(hostile.judged(folder) > 0)


if __name__ == "__main__":
    sys.exit(main())
