"""Put IFBench's 444 pairs and PandaLM's 999 through `tirjudge judge`, from the published files as they are.

    python tests/bench/judge_benchmarks.py                              # the embedded model
    python tests/bench/judge_benchmarks.py --model M --base-url URL     # whatever `tirjudge judge` takes

It shows that real rows go through, and what that costs; what the verdicts are worth is the model's affair.
PandaLM's label here is annotator 1's; its ties count in no accuracy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tirjudge.run_folder import read_lines
from tirjudge.tally import Tally

DATA = Path(os.environ.get("TIRJUDGE_BENCHMARK_DATA", Path(__file__).parents[3] / "shared" / "benchmarks"))
BENCHMARKS = {
    "ifbench/agentrm-ifbench-444.json": (
        ["prompt=text_chosen.0.content", "chosen=text_chosen", "rejected=text_rejected"],
        [],
    ),
    "pandalm/testset-v1.json": (
        ["id=idx", "prompt=instruction+input", "responses=response1,response2", "label=annotator1"],
        ["--labels", "0=tie,1=A,2=B"],
    ),
}


def main() -> int:
    """Returns how many of the files left a row without a result."""
    incomplete = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (columns, options) in BENCHMARKS.items():
            output = Path(folder) / Path(name).with_suffix(".jsonl").name
            command = [
                str(Path(sys.executable).with_name("tirjudge")),
                "judge",
                "--pairwise",
                str(DATA / name),
            ]
            command += [word for column in columns for word in ("--column", column)] + options
            started = time.monotonic()
            code = subprocess.run([*command, "--output", str(output), *sys.argv[1:]], check=False).returncode
            incomplete += code != 0
            report(name, output, code, time.monotonic() - started)
    return incomplete


def report(name: str, output: Path, code: int, seconds: float) -> None:
    tally = Tally()
    for row in read_lines(output):
        tally.add(row)
    failures = sum(1 for _ in read_lines(output.with_name(output.name + ".failed.jsonl")))
    print(
        f"{name}: exit code {code}, n = {tally.judged}, failures {failures}, verdicts {tally.verdicts}, "
        f"accuracy {tally.accuracy}, programs {tally.programs} ({tally.programs_failed} failed), "
        f"tokens {tally.prompt_tokens} + {tally.completion_tokens}, {seconds:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
