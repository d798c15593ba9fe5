"""Verdicts on criteria, compared with IFEval's verifiers, and choices by their aggregate.

    python -m benchmarks.criteria                                       # the embedded model
    python -m benchmarks.criteria --model M --base-url URL --n 200      # any option of `tirjudge judge`
    python -m benchmarks.criteria --only pairs-alone --output results

Prompts of IFEval with two constraints or more, each constraint a criterion: pairs of an answer of GPT-4's and
its copy, edited until one of them fails, and lists of one right and three wrong copies, as in RewardBench 2.
Every set is judged by its criteria and, for comparison, by the whole prompt. The rows are the first N of a
seeded order. `--output FOLDER` keeps rows and result files, and the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.criteria.rows import rows
from research.smol.sources import Fields, read_lines
from research.smol.splits import SPLITS, Split
from tests.command import TIRJUDGE
from tirjudge.statistics import Proportion
from tirjudge.storage.result_file import failures_path

SETS = {
    "pairs-alone": ("pairs", ("--pointwise",)),
    "pairs": ("pairs", ("--pairwise",)),
    "lists-alone": ("lists", ("--pointwise",)),
    "lists": ("lists", ("--listwise",)),
}
"""Each set's rows, and how they are judged."""
Count = Callable[[Fields, Fields], tuple[float, int]]
"""The right verdicts and all verdicts on the criteria of a row, given its line of the result file."""


def alone(wanted: bool) -> Count:
    """Count the verdicts on responses that satisfy their criterion, or on those that do not."""

    def count(row: Fields, line: Fields) -> tuple[float, int]:
        pairs = [
            (float(truth), found)
            for truths, one in zip(row["truth"], line["criteria"], strict=True)
            for truth, found in zip(truths, one["satisfied"], strict=True)
            if truth == wanted
        ]
        return sum(truth == found for truth, found in pairs), len(pairs)

    return count


def compared(row: Fields, line: Fields) -> tuple[float, int]:
    """Count the criteria that only some responses satisfy, and those whose verdict names one that does.

    A tie is shared.
    """
    criteria = [
        (truth, one["satisfied"])
        for truth, one in zip(row["truth"], line["criteria"], strict=True)
        if len(set(truth)) > 1
    ]
    right = sum(
        sum(share or 0.0 for truth, share in zip(truths, shares, strict=True) if truth)
        for truths, shares in criteria
    )
    return right, len(criteria)


def share(judged: Sequence[tuple[Fields, Fields]], count: Count) -> Proportion:
    """Return the share of right verdicts; those of a row depend on each other."""
    counts = np.array([count(*one) for one in judged], dtype=np.float64)
    right, trials = counts[:, 0], counts[:, 1]
    return replace(Proportion.of_rows(right, trials), successes=float(right.sum()), n=int(trials.sum()))


def report(name: str, judged: Sequence[tuple[Fields, Fields]], *, by_criteria: bool) -> Iterable[str]:
    """Yield the numbers of a set; a missing verdict counts as wrong."""
    if by_criteria:
        verdicts = [one for _, line in judged for each in line["criteria"] for one in each["satisfied"]]
        if name.endswith("alone"):
            yield f"verdicts on satisfied criteria   {share(judged, alone(True))}"
            yield f"verdicts on violated criteria    {share(judged, alone(False))}"
        else:
            yield f"verdicts on criteria that differ {share(judged, compared)}"
        yield f"responses without a verdict      {verdicts.count(None)} of {len(verdicts)}"
    credits = np.array([line["correct"] for _, line in judged], dtype=np.float64)
    ties = sum(line["verdict"] == "tie" for _, line in judged)
    none = sum(line["verdict"] is None for _, line in judged)
    yield f"choice of the right response     {Proportion.of_rows(credits)}, {ties} ties, {none} without"


def judge(file: Path, output: Path, words: Sequence[str]) -> list[tuple[Fields, Fields]]:
    """Judge rows with the command, and return each judged row with its line of the result file."""
    command = [TIRJUDGE, "judge", str(file), "--output", str(output), "--no-texts", *words]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    lines = {line["id"]: line for line in read_lines(output)}
    return [(row, lines[row["id"]]) for row in read_lines(file) if row["id"] in lines]


def main() -> None:
    """Judge every set twice, and print its numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SETS, action="append", help="judge only this set; repeatable")
    parser.add_argument("--split", choices=SPLITS, default="test", help="half of IFEval's prompts")
    parser.add_argument("--n", type=int, default=40, help="rows of each set")
    parser.add_argument("--output", type=Path, help="folder for the rows and the result files")
    options, further = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.output or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.only or SETS:
            measure(name, folder, options.split, options.n, further)


def measure(name: str, folder: Path, split: Split, n: int, words: Sequence[str]) -> None:
    """Judge a set by its criteria and by the whole prompt, and print the numbers."""
    kind, options = SETS[name]
    file = folder / f"{kind}-{split}-{n}.jsonl"
    if not file.exists():
        file.write_text("".join(json.dumps(row) + "\n" for row in islice(rows(kind, split), n)))
    for how, column in (("criteria", ()), ("whole-prompt", ("--column", "criteria="))):
        output, started = folder / f"{name}-{split}-{n}-{how}.jsonl", time.monotonic()
        judged = judge(file, output, (*options, *column, *words))
        failed = sum(1 for _ in failures_path(output).open()) if failures_path(output).exists() else 0
        seconds = time.monotonic() - started
        print(f"{name}, {split} half, by {how}: {len(judged)} rows, {failed} failed, {seconds:.0f} s")
        for line in report(name, judged, by_criteria=how == "criteria") if judged else ():
            print(f"  {line}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
