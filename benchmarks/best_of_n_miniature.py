"""Best-of-N by the embedded miniature over held-out constraints, with the verifiers as the truth.

Of each prompt's N candidates every one keeps the constraint with probability 1/4, drawn apart.

    python -m benchmarks.best_of_n_miniature --rows 100 --candidates 8 --seed 0 --output FOLDER
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.command import TIRJUDGE
from tirjudge_environments.constraints import CHECKABLE, HELD_OUT

GOOD = 0.25
METHODS = ("pointwise", "pairwise", "listwise")


def rows(count: int, candidates: int, seed: int) -> Iterator[dict[str, Any]]:
    """The families take turns; no word, threshold or wording is one that the miniature was trained on."""
    rng = Random(seed)
    for number in range(count):
        family = CHECKABLE[number % len(CHECKABLE)]
        drawn = family.draw(rng, HELD_OUT)
        slots = {"word": drawn.slots.word or None, "number": drawn.slots.number or None}
        yield {
            "id": f"{family.name}/{number}",
            "prompt": f"Write about the {HELD_OUT.word(rng)}. {drawn.text}",
            "responses": [drawn.write(rng, HELD_OUT, good=rng.random() < GOOD) for _ in range(candidates)],
            "instruction_id_list": [family.name],
            "kwargs": [slots],
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    file = asked.output / "rows.jsonl"
    lines = (json.dumps(row) + "\n" for row in rows(asked.rows, asked.candidates, asked.seed))
    file.write_text("".join(lines), encoding="utf-8")
    methods = [word for name in METHODS for word in ("--method", name)]
    command = [TIRJUDGE, "bon", file.name, "--max-tokens", "200", *methods]
    return subprocess.run(command, cwd=asked.output, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
