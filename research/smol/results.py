"""The results table of a model: `tirjudge judge` on every set, as Markdown and JSON.

    OMP_NUM_THREADS=1 python -m research.smol.results MODEL --sets FOLDER --output FOLDER
    OMP_NUM_THREADS=1 python -m research.smol.results MODEL ... --condition withheld
    OMP_NUM_THREADS=1 python -m research.smol.results MODEL ... --rows 60 --judge-option=--no-tools

MODEL is what `--model` accepts; an empty text is the embedded model. A run resumes: rows that are judged are
not judged again. The test half is scored once per released adapter, so it needs `--split test` explicitly.
`--rows N` judges the first N rows of each set, which are a seeded sample.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from research.smol.judging import CONDITIONS, judge_set, judged_rows
from research.smol.sets import NAMES
from research.smol.sources import Fields
from research.smol.splits import HELD_OUT_FAMILIES, SPLITS
from research.smol.summary import Judged, parts, summary
from tirjudge.models import resolve_model
from tirjudge.models.gguf_file import file_sha256
from tirjudge.models.resolve import NOTE_FILE, embedded_model, read_note
from tirjudge.storage.result_file import recorded_settings

HEADLINE = "broken", "repaired"
"""The headline is the worse of these two."""
_EDITED = "broken", "repaired", "both-edited"


def weights_sha256(folder: str) -> str:
    """Return the SHA-256 of a folder's adapter, or else of its weights; empty for anything else."""
    for name in ("adapter_model.safetensors", "model.safetensors"):
        file = Path(folder) / name
        if file.is_file():
            return file_sha256(file)
    return ""


def base_of(folder: str) -> str:
    """Return the base model that an adapter's note names, with its checksum; empty without one."""
    file = Path(folder) / NOTE_FILE
    base = json.loads(file.read_text(encoding="utf-8")).get("base") if file.is_file() else None
    return f"{base['name']}, sha256 {base['sha256']}" if base else ""


def shown_chars(output: Path, folder: str) -> str:
    """Return how many characters of a response the judge was shown, from the settings or the model's note."""
    settings = recorded_settings(output) or {}
    value = settings.get("shown_chars") or read_note(folder).shown_chars
    return str(value) if value else "whole"


def tables(judged: dict[str, list[Judged]]) -> dict[str, Any]:
    """Return the numbers of all sets: `sets`, `headline`, and `parts` by constraints, family and level."""
    edited = [one for name in _EDITED for one in judged.get(name, ())]
    found: dict[str, Any] = {"sets": {name: summary(rows) for name, rows in judged.items()}}
    headline = [found["sets"][name]["accuracy"] for name in HEADLINE if name in judged]
    if len(headline) == len(HEADLINE):
        found["headline"] = min(headline)
    found["parts"] = {
        "number of constraints": parts(edited, lambda row: [str(row["constraints"])]),
        "broken family": parts(edited, lambda row: row["broken"]),
        "families never trained in the compared arms": parts(
            edited, lambda row: ["held out" if row["held_out"] else "trained"]
        ),
        "kinds never trained": parts(judged.get("unseen", ()), lambda row: row["families"]),
        "everyday rows": parts(judged.get("everyday", ()), lambda row: row["families"]),
        "natural pairs, by level": parts(judged.get("natural", ()), lambda row: [row["level"]]),
        "published benchmarks": parts(
            [one for name in ("rm-bench", "judgebench") for one in judged.get(name, ())],
            lambda row: row["families"],
        ),
    }
    return found


def markdown(about: Fields) -> str:
    """Return a run's numbers as Markdown."""
    lines = [f"# Results of {about['model'] or 'the embedded model'}", ""]
    lines += [
        f"- {name}: {about[name]}"
        for name in ("split", "shown_chars", "sha256", "base", "seed", "condition", "rows")
        if about[name]
    ]
    lines += (
        [f"- headline, the worse of {' and '.join(HEADLINE)}: {_percent(about['headline'])}"]
        if "headline" in about
        else []
    )
    heads = [
        "set",
        "n",
        "right, %",
        "program errors",
        "calls per verdict",
        "without program",
        "without verdict",
    ]
    heads += ["program separates (right, followed)", "both orders (same, right)"]
    lines += ["", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, one in about["sets"].items():
        cells = [name, str(one["n"]), _interval(one), _percent(one["program_errors"])]
        calls = one["calls_per_verdict"]
        cells += [
            "-" if calls is None else f"{calls:.2f}",
            _percent(one["without_program"]),
            str(one["without_verdict"]),
        ]
        right, follows = _percent(one["program_right"]), _percent(one["verdict_follows"])
        cells.append(f"{one['program_separates']} ({right}, {follows})")
        both = "same_choice" in one
        cells.append(
            f"{_percent(one['same_choice'])}, {_percent(one['right_in_both_orders'])}" if both else ""
        )
        lines.append(f"| {' | '.join(cells)} |")
    for title, groups in about["parts"].items():
        if groups:
            lines += ["", f"| {title} | n | right, % |", "|---|---|---|"]
            lines += [f"| {name} | {one['n']} | {_interval(one)} |" for name, one in groups.items()]
    return "\n".join([*lines, "", "Commands:", "", *(f"    {command}" for command in about["commands"]), ""])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _interval(one: Fields) -> str:
    return f"{100 * one['accuracy']:.1f} [{100 * one['low']:.1f}, {100 * one['high']:.1f}]"


def judge_options(words: Iterable[str]) -> dict[str, Any]:
    """Return command-line options as the fields of JudgeOptions, for a run in this process."""
    found: dict[str, Any] = {}
    for word in words:
        name, given, value = word.removeprefix("--").partition("=")
        if not given:
            found[name.removeprefix("no-").replace("-", "_")] = not name.startswith("no-")
        else:
            found[name.replace("-", "_")] = int(value) if value.isdigit() else value
    return found


def measure(
    model: str,
    sets: Path,
    output: Path,
    split: str,
    names: Sequence[str],
    *,
    rows: int | None = None,
    condition: str = "",
    further: Sequence[str] = (),
) -> Fields:
    """Judge the sets, write `results.json` and `results.md`, and return the numbers."""
    judged: dict[str, list[Judged]] = {}
    commands, shown, folder = [], "", resolve_model(model) if model else embedded_model()
    for name in names:
        file, result = sets / f"{name}.{split}.jsonl", output / f"{name}.{split}.verdicts.jsonl"
        if not file.exists():
            continue
        options = judge_options(further) if condition else {}
        commands.append(
            judge_set(
                name, file, result, model, rows=rows, condition=condition, further=further, options=options
            )
        )
        judged[name] = judged_rows(file, result, rows)
        shown = shown_chars(result, folder)
    about = {
        "model": model,
        "split": split,
        "condition": condition,
        "rows": rows,
        "seed": next((word.split("=")[1] for word in further if word.startswith("--seed=")), "0"),
        "sha256": weights_sha256(folder),
        "base": base_of(folder),
        "shown_chars": shown,
        "held_out_families": HELD_OUT_FAMILIES,
        "commands": commands,
        **tables(judged),
    }
    (output / f"results.{split}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (output / f"results.{split}.md").write_text(markdown(about), encoding="utf-8")
    return about


def main() -> None:
    """Judge the sets with a model and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="what `tirjudge judge --model` accepts; '' is the embedded model")
    parser.add_argument("--sets", type=Path, required=True, help="the folder that research.smol.sets wrote")
    parser.add_argument("--output", type=Path, required=True, help="the folder for verdicts and tables")
    parser.add_argument("--split", choices=SPLITS, default="development")
    parser.add_argument("--only", choices=NAMES, action="append", help="judge only this set; repeatable")
    parser.add_argument("--rows", type=int, help="judge only the first rows of each set")
    parser.add_argument(
        "--condition",
        choices=tuple(CONDITIONS),
        default="",
        help="change what programs print",
    )
    parser.add_argument(
        "--judge-option",
        action="append",
        default=[],
        metavar="--NAME[=VALUE]",
        help="an option of `tirjudge judge`; repeatable",
    )
    options = parser.parse_args()
    about = measure(
        options.model,
        options.sets,
        options.output,
        options.split,
        options.only or NAMES,
        rows=options.rows,
        condition=options.condition,
        further=options.judge_option,
    )
    print(markdown(about))


if __name__ == "__main__":
    main()
