"""Peak memory of a run over many rows, with a judge that answers at once.

    OMP_NUM_THREADS=1 python -m benchmarks.stream_memory --rows 10000 100000

Each number of rows is judged in two processes: the first judges all rows, the second resumes the finished
run, which shows the cost of resuming. Rows are read from JSON lines and verdicts written to a result file;
the generator is scripted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tirjudge.data.rows import RowFile
from tirjudge.generation.scripted import ScriptedGenerator
from tirjudge.judging.batch import BatchRunner, EngineRowJudge, Failure, ResultSink
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.judging.tally import Tally
from tirjudge.storage.result_file import ResultFile


class Counting:
    """A batch observer that counts judged and already known rows, and stops at a failure."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.known = 0

    def judged(self, row: Mapping[str, Any]) -> None:
        self.tally.add(row)

    def failed(self, failure: Failure) -> None:
        raise AssertionError(failure)


def write_rows(path: Path, count: int) -> None:
    """Write `count` generated pairs as JSON lines."""
    with path.open("w") as file:
        for number in range(count):
            row = {"id": f"row-{number}", "prompt": f"Question {number}: " + "why? " * 100}
            row |= {"responses": ["because " * 100, "no " * 100], "label": number % 2}
            file.write(json.dumps(row) + "\n")


async def judge(rows: Path, output: Path) -> Counting:
    """Judge the rows with a scripted generator."""
    watcher = Counting()
    generator = ScriptedGenerator(lambda context: "Both are long. <preference>A</preference>")
    async with JudgeEngine(JudgeOptions(tools=False), generator=generator) as judge_engine:
        with ResultFile(output, {}) as results:
            runner = BatchRunner(EngineRowJudge(judge_engine).row, ResultSink(results, watcher))
            watcher.known = await runner.run(RowFile(str(rows))) - watcher.tally.judged
    return watcher


def measure(rows: Path, output: Path) -> None:
    """Judge the rows and print the peak memory; needs a process of its own, since the peak is per process."""
    began = time.perf_counter()
    watcher = asyncio.run(judge(rows, output))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = time.perf_counter() - began
    print(
        f"judged {watcher.tally.judged}, known {watcher.known}: peak {peak:.1f} MiB, {seconds:.1f} s",
        flush=True,
    )


def main() -> None:
    """Measure every number of rows twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000], help="numbers of rows")
    parser.add_argument("--measure", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
        return
    with tempfile.TemporaryDirectory() as name:
        for count in options.rows:
            rows, output = Path(name) / f"{count}.jsonl", Path(name) / f"{count}.verdicts.jsonl"
            write_rows(rows, count)
            command = [sys.executable, "-m", "benchmarks.stream_memory", "--measure", str(rows), str(output)]
            for _ in range(2):
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
