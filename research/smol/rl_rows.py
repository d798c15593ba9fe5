"""Rows for RL from labels alone: pairs and lists of a group of families, without their demonstrated programs.

    python -m research.smol.rl_rows --families ten --output rows.jsonl
    python -m research.smol.rl_rows --families ten --shuffle 0 --output shuffled.jsonl

With `--shuffle SEED` every label is drawn at random from the responses of its row: a control in which RL has
nothing to learn. Prints the number of rows by judge.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from pathlib import Path

from research.smol.splits import FAMILIES
from tirjudge_environments import derive_seed
from tirjudge_training.data.base import data_path

TRAIN = Path("package:smol/train.jsonl.gz")


def label_rows(families: str, shuffle: int | None = None) -> list[dict[str, object]]:
    """Return the rows of `smol`'s training file with these families only, without demonstrations."""
    found = []
    with gzip.open(data_path(TRAIN), "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            compared = row["environment"] != "tir-pointwise"
            if compared and row["families"] and set(row["families"]) <= set(FAMILIES[families]):
                row.pop("demonstration", None)
                if shuffle is not None:
                    row["label"] = derive_seed("shuffled label", shuffle, row["id"]) % len(row["responses"])
                found.append(row)
    return found


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", choices=FAMILIES, required=True)
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="draw every label at random")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    rows = label_rows(options.families, options.shuffle)
    options.output.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), "utf-8")
    print(dict(Counter(row["environment"] for row in rows)))


if __name__ == "__main__":
    main()
