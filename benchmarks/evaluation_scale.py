"""Seconds and peak memory of scoring and comparing stored outputs, by the number of rows.

    OMP_NUM_THREADS=1 python -m benchmarks.evaluation_scale --rows 10000 100000 1000000

Every measurement is one `tirjudge eval` in a process of its own, over two generated runs: JudgeBench files
(`net-vote`, `every-order`, `tir`), PandaLM files with ties (`three-class`), alpaca_eval files with fractional
preferences (`win-rate`), and result files of `tirjudge judge` with a program in each order (`verdict`). Half
of the rows get an independent second verdict, so that the two runs differ. Seconds are of the wall clock and
of the CPU; memory is the largest resident set.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-c", "from tirjudge.cli import main; main()")
MIB = 1024
"""Kibibytes, the unit of ru_maxrss on Linux, in a mebibyte."""

Row = dict[str, Any]


def judgebench_row(number: int, draw: random.Random) -> Row:
    texts = [draw.choice(("[[A>B]]", "[[B>A]]", "[[A=B]]")) for _ in range(2)]
    return {
        "pair_id": f"pair-{number}",
        "source": ("mmlu-pro-law", "livebench-math", "livecodebench")[number % 3],
        "label": ("A>B", "B>A")[number % 2],
        "judgments": [{"judgment": {"response": text}, "decision": None} for text in texts],
    }


def pandalm_row(number: int, draw: random.Random) -> Row:
    people = {f"annotator{one}": number % 3 for one in (1, 2, 3)}
    return {"idx": number, "pandalm_result": draw.randrange(3)} | people


def alpaca_eval_row(number: int, draw: random.Random) -> Row:
    return {
        "instruction": f"Instruction {number}",
        "output_1": "baseline",
        "generator_1": "base",
        "output_2": "answer",
        "generator_2": "model",
        "preference": draw.uniform(1, 2),
    }


def result_row(number: int, draw: random.Random) -> Row:
    return {
        "id": f"row-{number}",
        "format": "pairwise",
        "verdict": (best := draw.choice("AB")),
        "choice": "AB".index(best),
        "label": number % 2,
        "correct": float("AB".index(best) == number % 2),
        "stop": "verdict",
        "domain": ("following", "math", "code")[number % 3],
        "tags": [],
        "prompt": [{"role": "user", "content": f"Name {number} things in at most twenty words."}],
        "responses": ["One thing, and another.", f"There are {number} of these things."],
        "decided": draw.random() < 0.5,
        "views": [result_view(order, "AB".index(best)) for order in ([0, 1], [1, 0])],
        "programs": 2,
        "prompt_tokens": 800,
        "completion_tokens": draw.randrange(100, 200),
        "seconds": round(draw.uniform(0.5, 2), 3),
        "model": "judge",
    }


def result_view(order: list[int], best: int) -> Row:
    program = {"kind": "program", "text": "print(len(response_a.split()) <= 20)", "seed": 7, "exit_code": 0}
    return {
        "view": "".join("AB"[index] for index in order),
        "order": order,
        "verdict": {"choice": best, "tie": False, "scores": {}},
        "stop": "verdict",
        "segments": [
            {"kind": "reasoning", "text": "I count the words."},
            program | {"status": "ok", "stdout": "True\n", "bindings": {"response_a": order[0]}},
            {"kind": "output", "text": "True\n"},
            {"kind": "reasoning", "text": f"<preference>{'AB'[order.index(best)]}</preference>"},
        ],
        "evidence": "separates",
    }


WORKLOADS: dict[str, Callable[[int, random.Random], Row]] = {
    "net-vote": judgebench_row,
    "every-order": judgebench_row,
    "tir": judgebench_row,
    "three-class": pandalm_row,
    "win-rate": alpaca_eval_row,
    "verdict": result_row,
}


def rows_of_run(make: Callable[[int, random.Random], Row], count: int, run: int) -> Iterator[Row]:
    for number in range(count):
        shared = run == 0 or number % 2
        yield make(number, random.Random(number if shared else -number - 1))


def write_run(path: Path, rows: Iterator[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")


def measure(arguments: list[str], limit: float) -> str:
    """Run `tirjudge eval` and return its seconds and memory, or how it failed."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=errors)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            seconds = time.monotonic() - started
            if pid:
                break
            if seconds > limit:
                process.kill()
                os.wait4(process.pid, 0)
                return f"no answer within {limit:.0f} s"
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            return f"exit code {process.returncode}: {errors.read().decode()[-200:].strip()}"
    cpu = usage.ru_utime + usage.ru_stime
    return f"{seconds:7.1f} s {cpu:7.1f} CPU s {usage.ru_maxrss / MIB:7.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--protocol", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a command is ended")
    options = parser.parse_args()
    for count in options.rows:
        with tempfile.TemporaryDirectory() as folder:
            for protocol in options.protocol:
                make = WORKLOADS[protocol]
                paths = [Path(folder) / f"{make.__name__}-{run}.jsonl" for run in (0, 1)]
                for run, path in enumerate(paths):
                    if not path.exists():
                        write_run(path, rows_of_run(make, count, run))
                named = ["--protocol", protocol]
                scored = measure(["score", str(paths[0]), *named], options.limit)
                compared = measure(["compare", *map(str, paths), *named], options.limit)
                print(f"{count:>8} {protocol:<12} score   {scored}", flush=True)
                print(f"{count:>8} {protocol:<12} compare {compared}", flush=True)


if __name__ == "__main__":
    main()
