"""Best-of-N by the miniature over held-out constraints, with the verifiers as the truth.

Each of a prompt's N candidates satisfies the constraint with probability 1/4, independently of the others.

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

from examples.miniature import TRAINED
from examples.miniature.constraints import CHECKABLE, HELD_OUT
from tests.command import TIRJUDGE

GOOD = 0.25
"""The probability that a candidate satisfies the constraint."""
METHODS = ("pointwise", "pairwise", "listwise")


def rows(count: int, candidates: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield rows for `tirjudge bon`, the families in turn, without words or wordings of the training half."""
    rng = Random(seed)
    for number in range(count):
        family = CHECKABLE[number % len(CHECKABLE)]
        constraint = family.draw(rng, HELD_OUT)
        responses = [constraint.write(rng, HELD_OUT, good=rng.random() < GOOD) for _ in range(candidates)]
        yield {
            "id": f"{family.name}/{number}",
            "prompt": f"Write about the {HELD_OUT.word(rng)}. {constraint.text}",
            "responses": responses,
            "solved": [int(constraint.holds(response)) for response in responses],
        }


def main() -> int:
    """Write the rows and run `tirjudge bon` on them; return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100, help="number of prompts")
    parser.add_argument("--candidates", type=int, default=8, help="responses per prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="the folder for rows and results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "rows.jsonl"
    lines = (json.dumps(row) + "\n" for row in rows(options.rows, options.candidates, options.seed))
    file.write_text("".join(lines), encoding="utf-8")
    methods = [word for name in METHODS for word in ("--method", name)]
    command = [TIRJUDGE, "bon", file.name, "--model", str(TRAINED), "--max-tokens", "200", *methods]
    return subprocess.run(command, cwd=options.output, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
