"""Pooled numbers of models on the same rows, and their paired differences with a bootstrap.

    python -m research.smol.differences --split test --sets FOLDER \\
        --compare "tools - text only=TOOLS-0,TOOLS-1,TOOLS-2:TEXT-0,TEXT-1,TEXT-2" \\
        --compare "tools - outputs withheld=TOOLS-0:WITHHELD-0" ...

A comparison names the folders that `research.smol.results` wrote, one for each seed, paired by position.
Its measure, one of `MEASURES`, is averaged over the pairs of `PRIMARY`, or of the sets that `--only` names,
pooled. A bootstrap sample draws prompts with all their rows, and seeds, both with replacement. The p-value
is two-sided, and corrected by Holm's method over all comparisons of one call. With one seed the interval
covers prompts only.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from research.smol.judging import judged_rows
from research.smol.sets import NAMES
from research.smol.sources import Fields
from research.smol.splits import SEED, SPLITS
from research.smol.summary import Judged, credit, program_right, right_in_all_orders, summary

PRIMARY = "broken", "repaired", "both-edited", "natural"
"""Sets whose pooled accuracy is compared."""
COMPARISONS = "tools - text only", "tools - outputs withheld", "RL - SFT continued", "rounds - RL continued"
"""The primary comparisons, fixed before training."""
MEASURES: Mapping[str, Callable[[Judged], float]] = {
    "right": credit,
    "both-orders": right_in_all_orders,
    "program": program_right,
}
"""What is compared: right verdicts, right verdicts in both orders (`--judge-option=--order=both`), or the
share of a row's views whose program separates the responses and is right."""
_RESAMPLES = 10_000

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two accuracies in points, with its bootstrap interval."""

    name: str
    prompts: int
    rows: int
    seeds: int
    points: float
    low: float
    high: float
    p: float


def differences_by_prompt(
    first: Sequence[Judged], second: Sequence[Judged], measure: Callable[[Judged], float] = credit
) -> dict[str, list[float]]:
    """Return the differences of a measure, by prompt. Raises ValueError unless both judged the same rows."""
    others = {str(row["id"]): (row, line) for row, line in second}
    if {str(row["id"]) for row, _ in first} != set(others):
        raise ValueError("the two models judged different rows: use the same --split and --rows")
    found: dict[str, list[float]] = {}
    for row, line in first:
        delta = measure((row, line)) - measure(others[str(row["id"])])
        found.setdefault(row["prompt"], []).append(delta)
    return found


def bootstrap(name: str, seeds: Sequence[Mapping[str, Sequence[float]]], seed: int = SEED) -> Difference:
    """Return the mean difference over seeds, with a percentile interval and a two-sided p-value.

    Each of `seeds` maps a prompt to the differences of its rows.
    """
    prompts = sorted(seeds[0])
    sums = np.array([[sum(one[prompt]) for prompt in prompts] for one in seeds])
    counts = np.array([len(seeds[0][prompt]) for prompt in prompts], dtype=np.float64)
    rng = np.random.default_rng(seed)
    means = np.empty(_RESAMPLES)
    for i in range(_RESAMPLES):
        drawn = np.bincount(rng.integers(len(prompts), size=len(prompts)), minlength=len(prompts))
        by_seed = sums[rng.integers(len(seeds), size=len(seeds))] @ drawn
        means[i] = by_seed.mean() / (counts @ drawn)
    low, high = np.quantile(means, [0.025, 0.975])
    tail = min(np.sum(means <= 0), np.sum(means >= 0))
    return Difference(
        name=name,
        prompts=len(prompts),
        rows=int(counts.sum()),
        seeds=len(seeds),
        points=100 * float(sums.mean(axis=0).sum() / counts.sum()),
        low=100 * float(low),
        high=100 * float(high),
        # One is added, so that no p-value is zero.
        p=min(1.0, 2 * float(tail + 1) / (_RESAMPLES + 1)),
    )


def holm(values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down method (Holm 1979), in the order given."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, highest = [0.0] * len(values), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - place) * values[index]))
        adjusted[index] = highest
    return adjusted


def pooled(
    folder: Path,
    sets: Path,
    split: str,
    rows: int | None,
    longest: float = math.inf,
    names: Sequence[str] = PRIMARY,
) -> list[Judged]:
    """Return the rows of all named sets that exist, with a model's lines from its results folder.

    Rows with a response of more than `longest` characters are left out.
    """
    found: list[Judged] = []
    for name in names:
        if (file := sets / f"{name}.{split}.jsonl").exists():
            result = folder / f"{name}.{split}.verdicts.jsonl"
            if not result.exists():
                raise ValueError(f"no verdicts at {result}: run research.smol.results for it")
            found += judged_rows(file, result, rows)
    return [one for one in found if max(map(len, one[0]["responses"])) <= longest]


def models_table(models: Mapping[str, Sequence[Judged]]) -> str:
    """Return the pooled numbers of each results folder as a Markdown table."""
    lines = [
        "| model | rows | right, % | right in both orders, % | programs that separate (right, followed) "
        "| without verdict |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in models.items():
        one = summary(rows)
        separates = one["program_separates"]
        right, followed = (separates * (one[key] or 0.0) for key in ("program_right", "verdict_follows"))
        lines.append(
            f"| {name} | {one['n']} | {100 * one['accuracy']:.1f} "
            f"| {100 * fmean(map(right_in_all_orders, rows)):.1f} "
            f"| {separates} ({right:.0f}, {followed:.0f}) | {one['without_verdict']} |"
        )
    return "\n".join(lines)


def table(found: Sequence[Difference]) -> str:
    """Return the differences as a Markdown table with Holm's correction over its rows."""
    lines = [
        "| comparison | prompts | rows | seeds | points | p | p, Holm |",
        "|---|---|---|---|---|---|---|",
    ]
    for one, adjusted in zip(found, holm([one.p for one in found]), strict=True):
        seeds = str(one.seeds) if one.seeds > 1 else "1 (prompts only)"
        points = f"{one.points:+.1f} [{one.low:+.1f}, {one.high:+.1f}]"
        lines.append(
            f"| {one.name} | {one.prompts} | {one.rows} | {seeds} | {points} | {one.p:.4f} | {adjusted:.4f} |"
        )
    return "\n".join(lines)


def differing(name: str, first: Sequence[Judged], second: Sequence[Judged]) -> str:
    """Return the rows whose verdicts differ between two models as a Markdown table, with their number."""
    others = {str(row["id"]): line for row, line in second}
    pairs = [(row, _verdict(line), _verdict(others[str(row["id"])])) for row, line in first]
    different = [
        (str(row["id"]), str(row["label"]), *verdicts) for row, *verdicts in pairs if len(set(verdicts)) > 1
    ]
    lines = [
        f"{name}: the same verdict for {len(pairs) - len(different)} of {len(pairs)} rows",
        "",
        "| row | label | first | second |",
        "|---|---|---|---|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(one) + " |" for one in different)])


def _verdict(line: Fields | None) -> str:
    return str((line or {}).get("verdict"))


def main() -> None:
    """Print the pooled numbers of the models and the comparisons, and write the comparisons as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=Path, required=True, help="the folder that research.smol.sets wrote")
    parser.add_argument("--split", choices=SPLITS, default="development")
    parser.add_argument("--rows", type=int, help="the rows of each set that were judged")
    parser.add_argument(
        "--longest", type=int, default=math.inf, help="the most characters of a response in the compared rows"
    )
    parser.add_argument(
        "--compare",
        action="append",
        required=True,
        metavar="NAME=FOLDER,...:FOLDER,...",
        help=f"a comparison; repeatable. The primary ones: {'; '.join(COMPARISONS)}",
    )
    parser.add_argument("--measure", choices=MEASURES, default="right")
    parser.add_argument(
        "--only",
        choices=NAMES,
        action="append",
        help="compare this set instead of the pooled ones; repeatable",
    )
    parser.add_argument("--differing", action="store_true", help="also list the rows with other verdicts")
    parser.add_argument("--output", type=Path, help="write the numbers as JSON")
    options = parser.parse_args()
    models: dict[str, list[Judged]] = {}
    found, lists = [], []
    for text in options.compare:
        name, _, folders = text.rpartition("=")
        sides = [side.split(",") for side in folders.split(":")]
        for folder in [folder for side in sides for folder in side if folder not in models]:
            models[folder] = pooled(
                Path(folder),
                options.sets,
                options.split,
                options.rows,
                options.longest,
                options.only or PRIMARY,
            )
        # One pair of folders for each seed.
        pairs = list(zip(*sides, strict=True))
        measure = MEASURES[options.measure]
        seeds = [differences_by_prompt(models[one], models[other], measure) for one, other in pairs]
        found.append(bootstrap(name, seeds))
        if options.differing:
            lists += [differing(f"{one}, {other}", models[one], models[other]) for one, other in pairs]
    print(models_table(models), table(found), *lists, sep="\n\n")
    if options.output:
        adjusted = holm([one.p for one in found])
        records = [
            {**{key: getattr(one, key) for key in one.__slots__}, "p_holm": value}
            for one, value in zip(found, adjusted, strict=True)
        ]
        options.output.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
