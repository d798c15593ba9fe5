"""A full pass over IFBench's 444 pairs, PandaLM's 999 and JudgeBench's 350, the last two in both orders.

    python -m benchmarks.judge_benchmarks                                   # the embedded model
    python -m benchmarks.judge_benchmarks --model M --base-url URL          # any option of `tirjudge eval`
    python -m benchmarks.judge_benchmarks --only pandalm --output results --max-tokens 256

Reads the published files unchanged. Prints each benchmark's numbers under its protocols, and the cost of the
pass in seconds and tokens. With `--output FOLDER` the result files are kept there, and the same command
resumes an interrupted pass.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.command import TIRJUDGE
from tirjudge.judging.tally import Tally
from tirjudge.storage.json_lines import read_lines
from tirjudge.storage.result_file import failures_path

DATA = Path(os.environ.get("TIRJUDGE_BENCHMARK_DATA", Path(__file__).parents[2] / "shared" / "benchmarks"))
FILES = {
    "ifbench-agentrm": "ifbench/agentrm-ifbench-444.json",
    "pandalm": "pandalm/testset-v1.json",
    "judgebench": "judgebench/pairs-gpt-4o.jsonl",
}


def main() -> int:
    """Run the benchmarks; return the number of those that left a row without a result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=FILES, action="append", help="run only this one; repeatable")
    parser.add_argument("--output", type=Path, help="the folder for the result files")
    options, further = parser.parse_known_args()
    incomplete = 0
    with tempfile.TemporaryDirectory() as name:
        folder = options.output or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for benchmark in options.only or FILES:
            output = folder / f"{benchmark}.verdicts.jsonl"
            command = [TIRJUDGE, "eval", benchmark, "--no-cache"]
            command += ["--data", str(DATA / FILES[benchmark]), "--output", str(output), *further]
            started = time.monotonic()
            code = subprocess.run(command, check=False).returncode
            incomplete += code != 0
            report(benchmark, output, code, time.monotonic() - started)
    return incomplete


def report(name: str, output: Path, code: int, seconds: float) -> None:
    """Print verdicts, failures, tokens and calls of one finished pass."""
    tally = Tally()
    for row in read_lines(output):
        tally.add(row)
    calls = list(read_lines(output.with_name(output.name + ".calls.jsonl")))
    failures = sum(1 for _ in read_lines(failures_path(output)))
    print(
        f"{name}: exit code {code}, n = {tally.judged}, failures {failures}, verdicts {tally.verdicts}, "
        f"accuracy {tally.accuracy}, programs {tally.programs} ({tally.programs_failed} failed), "
        f"tokens {tally.prompt_tokens} + {tally.completion_tokens}, calls {len(calls)}, {seconds:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
