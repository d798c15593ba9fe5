"""Rows for RL from labels alone: pairs and lists of a group of families, without their demonstrated programs.

    python -m research.smol.rl_rows --families ten --output rows.jsonl
    python -m research.smol.rl_rows --families all --output all.jsonl
    python -m research.smol.rl_rows --families ten --shuffle 0 --output shuffled.jsonl
    python -m research.smol.rl_rows --families eight --demonstrations 3 --output few.jsonl
    python -m research.smol.rl_rows --families ten --near-misses 1000 --sources DIR --output near.jsonl

With `--shuffle SEED` every label is drawn at random from the responses of its row: a control in which RL has
nothing to learn. With `--demonstrations N` the file has N demonstrated rows of each family instead, which
have no other constraint. With `--near-misses N` N rows are generated from the sources of `smol`'s rows, whose
worse responses are the best one, edited so that it breaks a constraint: a program that checks a part of the
constraint does not separate them. Prints the number of rows by judge.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.smol.splits import FAMILIES, rank
from research.smol.training_rows.families.registry import FAMILIES as REGISTERED
from research.smol.training_rows.generator import Generator
from tirjudge.cli.output import log
from tirjudge_environments import derive_seed
from tirjudge_training.data.base import data_path

TRAIN = Path("package:smol/train.jsonl.xz")
WARMUP = Path("package:smol/warmup.jsonl.xz")
GROUPS = {**FAMILIES, "all": tuple(REGISTERED)}
"""The values of `--families`."""

Row = dict[str, Any]


def _compared(file: Path, families: Sequence[str]) -> list[Row]:
    """Return the pairs and lists of a file whose constraints are all of these families."""
    with lzma.open(data_path(file), "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        row
        for row in rows
        if row["environment"] != "tir-pointwise" and row["families"] and set(row["families"]) <= set(families)
    ]


def label_rows(families: str) -> list[Row]:
    """Return the rows of `smol`'s training file with these families only, without demonstrations."""
    rows = _compared(TRAIN, GROUPS[families])
    for row in rows:
        row.pop("demonstration", None)
    return rows


def near_misses(families: str, count: int, sources: Path, seed: int = 0) -> list[Row]:
    """Return generated rows whose worse responses are edits of the best one, without demonstrations."""
    without = sorted(set(REGISTERED) - set(GROUPS[families]))
    generator = Generator(sources, sources.parent / "benchmarks", seed=seed, without=without, say=log)
    rows = [draft.row(f"near-{number:05d}") for number, draft in enumerate(generator.near_misses(count))]
    for row in rows:
        row.pop("demonstration")
    return rows


def demonstrated_rows(families: str, each: int) -> list[Row]:
    """Return `each` rows of every family from the file of demonstrations, drawn by a seed."""
    return [
        row
        for family in GROUPS[families]
        for row in sorted(_compared(WARMUP, [family]), key=lambda row: rank("demonstration", row["id"]))[
            :each
        ]
    ]


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", choices=GROUPS, required=True)
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="draw every label at random")
    parser.add_argument(
        "--demonstrations", type=int, metavar="N", help="write N demonstrated rows of each family"
    )
    parser.add_argument("--near-misses", type=int, metavar="N", help="generate N rows, from --sources")
    parser.add_argument("--sources", type=Path, help="folder with mbpp/ and self-instruct/")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if options.near_misses and options.sources is None:
        parser.error("--near-misses needs --sources")
    if options.near_misses:
        rows = near_misses(options.families, options.near_misses, options.sources)
    elif options.demonstrations:
        rows = demonstrated_rows(options.families, options.demonstrations)
    else:
        rows = label_rows(options.families)
    for row in rows if options.shuffle is not None else ():
        row["label"] = derive_seed("shuffled label", options.shuffle, row["id"]) % len(row["responses"])
    options.output.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8")
    print(dict(Counter(row["environment"] for row in rows)))


if __name__ == "__main__":
    main()
