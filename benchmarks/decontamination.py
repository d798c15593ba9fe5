"""Rows decontaminated per second, and the memory it takes, with overlaps planted among them.

    python -m benchmarks.decontamination --rows 100000

Benchmarks are texts of random words, of the lengths that prompts have. Every other row has eight words in a
row of one of them, at any place; the others have seven, and are controls. Exit code 1 if any was missed or
any control dropped.
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
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--benchmark-texts", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(_measure(Path(folder), options))


def _measure(folder: Path, options: argparse.Namespace) -> int:
    draw = Random(options.seed)
    texts = [draw.choices(WORDS, k=draw.randint(20, 300)) for _ in range(options.benchmark_texts)]
    (folder / "bench.jsonl").write_text(_lines({"prompt": " ".join(text)} for text in texts))
    planted = [number % 2 == 0 for number in range(options.rows)]
    rows = (
        {"id": str(i), "prompt": _prompt(draw, texts, 8 if planted[i] else 7)} for i in range(options.rows)
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
    lost = sum(1 for number, is_planted in enumerate(planted) if not is_planted and str(number) not in kept)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / MIB
    print(
        f"{options.rows:,} rows beside {options.benchmark_texts:,} texts, the command as a whole: "
        f"{cpu:.1f} CPU seconds, {seconds:.1f} s by the clock, at most {peak:,.0f} MiB"
    )
    print(
        f"{sum(planted):,} planted, {missed} missed; {len(planted) - sum(planted):,} controls, {lost} dropped"
    )
    return 1 if missed or lost else 0


def _prompt(draw: Random, texts: list[list[str]], shared: int) -> str:
    source = draw.choice(texts)
    start = draw.randint(0, len(source) - shared)
    before, after = (draw.choices(WORDS, k=draw.randint(5, 120)) for _ in range(2))
    # A word of no benchmark on both sides: by chance a neighbour would now and then be the eighth word.
    return " ".join([*before, EDGE, *source[start : start + shared], EDGE, *after])


def _lines(rows: Iterator[dict[str, str]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
