"""Generates the training data of the small real judge: warmup, train and heldout.jsonl.xz, with a card.

    python -m research.smol.training_rows --sources DIR --output data/smol

The files are a function of the seed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from research.smol.training_rows.card import card_lines
from research.smol.training_rows.generator import SIZES, Generator, drawn_families, write
from research.smol.training_rows.requests import BadSources
from tirjudge.cli.output import log


def main(words: list[str] | None = None) -> None:
    """Generate the files. A source that cannot be read ends the program with one line and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m research.smol.training_rows", description=__doc__)
    parser.add_argument("--sources", type=Path, required=True, help="folder with mbpp/ and self-instruct/")
    parser.add_argument("--output", type=Path, default=Path("data/smol"), help="folder for the files")
    parser.add_argument(
        "--benchmarks",
        type=Path,
        help="folder with the benchmarks' prompts (benchmarks/ next to the sources)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1, help="multiply the numbers of rows")
    parser.add_argument("--without", action="append", default=[], help="leave this family out; repeatable")
    parser.add_argument("--held-out-families", type=int, default=0, help="leave out families drawn by seed")
    given = parser.parse_args(words)
    named = [*given.without, *drawn_families(given.held_out_families, given.seed)]
    folder = given.benchmarks or given.sources.parent / "benchmarks"
    try:
        generator = Generator(given.sources, folder, seed=given.seed, without=named, say=log)
    except BadSources as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    given.output.mkdir(parents=True, exist_ok=True)
    for name, size in SIZES.items():
        rows = generator.make(name, max(1, round(size * given.scale)))
        write(rows, given.output / f"{name}.jsonl.xz", name)
        print(f"{given.output / name}.jsonl.xz: {len(rows):,} rows")
    options = [f"--seed {given.seed}", *([f"--scale {given.scale:g}"] if given.scale != 1 else [])]
    options += [f"--without {name}" for name in named]
    command = f"{parser.prog} --sources DIR {' '.join(options)}"
    card = "\n".join(card_lines(generator.report, command)) + "\n"
    (given.output / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
