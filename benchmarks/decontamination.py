"""Speed, memory and errors of `tirjudge data decontaminate` on rows with planted overlaps.

    python -m benchmarks.decontamination --rows 100000

The benchmark consists of random words, in texts as long as prompts are. Every other row shares eight words in
a row with one of these texts, at any position; the others share seven and are controls. The exit code is 1 if
an overlap was missed or a control dropped.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.command import TIRJUDGE

WORDS = [
    f"{first}{second}" for first in ("ba", "ko", "ri", "su", "te", "lo", "mi", "za") for second in range(2500)
]
EDGE = "edge"
"""A word that no benchmark text contains."""
MIB = 1 << 20


def main() -> None:
    """Run the measurement in a temporary folder and exit with its code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows to decontaminate")
    parser.add_argument("--benchmark-texts", type=int, default=30_000, help="prompts of the benchmark")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(_measure(Path(folder), options))


def _measure(folder: Path, options: argparse.Namespace) -> int:
    """Run the command on generated files; print its cost and its errors and return the exit code."""
    rng = Random(options.seed)
    texts = [rng.choices(WORDS, k=rng.randint(20, 300)) for _ in range(options.benchmark_texts)]
    (folder / "bench.jsonl").write_text(_lines({"prompt": " ".join(text)} for text in texts))
    planted = [number % 2 == 0 for number in range(options.rows)]
    rows = (
        {"id": str(i), "prompt": _prompt(rng, texts, 8 if planted[i] else 7)} for i in range(options.rows)
    )
    (folder / "rows.jsonl").write_text(_lines(rows))
    command = [
        *(TIRJUDGE, "data", "decontaminate"),
        *(str(folder / "rows.jsonl"), "--against", str(folder / "bench.jsonl")),
        *("--output", str(folder / "clean.jsonl")),
    ]
    begun = time.monotonic()
    subprocess.run(command, check=True)
    seconds = time.monotonic() - begun
    kept = {json.loads(line)["id"] for line in (folder / "clean.jsonl").open()}
    missed = sum(1 for number, is_planted in enumerate(planted) if is_planted and str(number) in kept)
    dropped = sum(
        1 for number, is_planted in enumerate(planted) if not is_planted and str(number) not in kept
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MIB
    print(
        f"{options.rows:,} rows against {options.benchmark_texts:,} texts, the whole command: "
        f"{cpu:.1f} CPU seconds, {seconds:.1f} s of wall time, {peak:,.0f} MiB at its peak"
    )
    print(
        f"{sum(planted):,} planted, {missed} missed; "
        f"{len(planted) - sum(planted):,} controls, {dropped} dropped"
    )
    return 1 if missed or dropped else 0


def _prompt(rng: Random, texts: list[list[str]], shared: int) -> str:
    """Return random words around `shared` consecutive words of one of the texts."""
    source = rng.choice(texts)
    start = rng.randint(0, len(source) - shared)
    before, after = (rng.choices(WORDS, k=rng.randint(5, 120)) for _ in range(2))
    # Without EDGE, a random neighbour would sometimes extend the seven shared words to eight.
    return " ".join([*before, EDGE, *source[start : start + shared], EDGE, *after])


def _lines(rows: Iterator[dict[str, str]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
