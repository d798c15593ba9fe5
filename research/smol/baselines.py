"""Baselines of the smol judge on pairs: answers that need no judge, and the untuned model.

    OMP_NUM_THREADS=1 python -m research.smol.baselines SETS --split development --output FILE.json
    OMP_NUM_THREADS=1 python -m research.smol.baselines SETS --model smol --rows 60 --only broken

Without `--model`: the longer response; surface features with the family predicted from the prompt, fitted
on the training rows of the package or of `--train FILE`; the same fitted on the set itself with the true
families (ten folds, flattering); and the nearest training prompt's program. With `--model`, which is slow:
the untuned model by forced choice (the letter with the higher probability, over both orders) and few-shot in
the judge's own format.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from research.smol import surface
from research.smol.nearest import Nearest, credit
from research.smol.sources import Fields, read_lines
from research.smol.splits import SPLITS
from tirjudge.data.sources import open_rows
from tirjudge.statistics import Proportion
from tirjudge_sandbox import open_sandbox

PAIRS = (
    "broken",
    "repaired",
    "both-edited",
    "natural",
    "mbpp",
    "gsm8k",
    "rm-bench",
    "judgebench",
    "no-program",
)
PACKAGED = Path(__file__).parents[2] / "training/tirjudge_training/smol"
_EDITED = "broken", "repaired", "both-edited", "mbpp"


def training_rows(files: Iterable[Path]) -> list[Fields]:
    """Return the rows of training files, which may be compressed."""
    return [dict(row.fields) for file in files for row in open_rows(str(file)) if hasattr(row, "fields")]


def labelled(rows: Iterable[Fields]) -> list[Fields]:
    """Return the pairs with their label as an index."""
    ranking = {"A>B": 0, "B>A": 1}
    return [
        row | {"label": ranking.get(row["label"], row["label"])} for row in rows if len(row["responses"]) == 2
    ]


def entry(name: str, split: str, baseline: str, credits: Sequence[float], **about: Any) -> Fields:
    """Return one line of the table."""
    found = Proportion(sum(credits), len(credits))
    low, high = found.interval
    return {
        "set": name,
        "split": split,
        "baseline": baseline,
        "n": found.n,
        "accuracy": found.rate,
        "low": low,
        "high": high,
        **about,
    }


def chosen(rows: Sequence[Fields], choices: Sequence[int]) -> list[float]:
    """Return the credits of choices."""
    return [float(choice == row["label"]) for row, choice in zip(rows, choices, strict=True)]


def longer(rows: Sequence[Fields]) -> list[float]:
    """Return the credits of choosing the longer response; equal lengths count one half."""
    credits = []
    for row in rows:
        lengths = [len(text) for text in row["responses"]]
        tie = lengths[0] == lengths[1]
        credits.append(0.5 if tie else float(lengths.index(max(lengths)) == row["label"]))
    return credits


async def by_nearest_program(
    training: Sequence[Fields], sets: dict[tuple[str, str], list[Fields]]
) -> list[Fields]:
    """Return the lines of the nearest program, with how often it decided."""
    nearest, lines = Nearest(training), []
    async with open_sandbox() as sandbox:
        for (name, split), rows in sets.items():
            found = [await credit(nearest, row, sandbox) for row in rows]
            ends = dict(Counter(end for _, end in found).most_common())
            lines.append(entry(name, split, "nearest program", [value for value, _ in found], ends=ends))
    return lines


def without_model(sets: dict[tuple[str, str], list[Fields]], training: Sequence[Fields]) -> list[Fields]:
    """Return the lines of all baselines that need no model; those on training rows only if there are any."""
    lines = []
    for (name, split), rows in sets.items():
        lines.append(entry(name, split, "longer response", longer(rows)))
        if name in _EDITED and len(rows) >= 20:
            choices = surface.cross_validated(rows)
            lines.append(entry(name, split, "surface, fitted on the set itself", chosen(rows, choices)))
    if training:
        every = [row for rows in sets.values() for row in rows]
        choices = iter(surface.fitted_on_training(training, every))
        for (name, split), rows in sets.items():
            credits = chosen(rows, [next(choices) for _ in rows])
            lines.append(entry(name, split, "surface, fitted on training pairs", credits))
        lines += asyncio.run(by_nearest_program(training, sets))
    return lines


def table(lines: Iterable[Fields]) -> str:
    """Return the lines as a Markdown table."""
    rows = ["| set | split | baseline | n | right, % | |", "|---|---|---|---|---|---|"]
    for line in lines:
        share = f"{100 * line['accuracy']:.1f} [{100 * line['low']:.1f}, {100 * line['high']:.1f}]"
        ends = ", ".join(f"{count} {end}" for end, count in line.get("ends", {}).items())
        rows.append(
            f"| {line['set']} | {line['split']} | {line['baseline']} | {line['n']} | {share} | {ends} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Measure the baselines on the pairs of a folder of sets; print a table and write its lines as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path, help="the folder that `research.smol.sets` wrote")
    parser.add_argument("--split", choices=SPLITS, action="append", help="default: both, without a model")
    parser.add_argument("--only", choices=PAIRS, action="append", help="measure only this set; repeatable")
    parser.add_argument("--rows", type=int, help="use only the first rows of each set, which are a sample")
    parser.add_argument("--train", type=Path, action="append", help="a file of training rows; repeatable")
    parser.add_argument("--model", default="", help="the untuned model: a folder, `smol` or a hub id")
    parser.add_argument("--output", type=Path, help="write the lines as JSON")
    options = parser.parse_args()
    packaged = [PACKAGED / name for name in ("warmup.jsonl.xz", "train.jsonl.xz")]
    training = training_rows(options.train or [file for file in packaged if file.exists()])
    # The untuned model is slow and only compared on the development half.
    splits = options.split or (("development",) if options.model else SPLITS)
    sets = {
        (name, split): labelled(read_lines(file))[: options.rows]
        for split in splits
        for name in options.only or PAIRS
        if (file := options.sets / f"{name}.{split}.jsonl").exists()
    }
    if options.model:
        from research.smol.untuned import with_model

        lines = with_model(options.model, sets, training)
    else:
        lines = without_model(sets, training)
    print(table(lines))
    if options.output:
        options.output.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
