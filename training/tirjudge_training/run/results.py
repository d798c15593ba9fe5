"""The results of a run: its accuracies as a table, what training gained, and the rows that it used."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tirjudge.console_text import markdown_table
from tirjudge.data.suggestions import labels_option
from tirjudge.models.resolve import shipped_models
from tirjudge.statistics.proportions import paired_difference
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.data.base import data_path
from tirjudge_training.heldout import ANSWERS, percentage
from tirjudge_training.methods import HELDOUT, Pipeline
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.base import Say

RESULTS = "results.md"
ROWS = "rows.json"
"""The file of a run folder with the number of training rows per judge, and of rows that were left out."""


def table(pipeline: Pipeline, results: Mapping[str, Any]) -> str:
    """Return Markdown: one row per measured model, one column per judge, with 95 % intervals."""
    rows = {name: results[HELDOUT + name] for name in pipeline.models}
    judges = list(next(iter(rows.values()), {}))
    cells = (
        [name, *(percentage(found[judge]["accuracy"]) for judge in judges)] for name, found in rows.items()
    )
    return "\n".join(markdown_table(["model", *judges], cells)) + "\n"


def say_gain(pipeline: Pipeline, folder: Path, say: Say) -> None:
    """Say whether the result is right more often than the first measured model, about the same tasks."""
    names = list(pipeline.models)
    first = names[0]
    # Controls are measured after the result; a method of another package may not measure its result.
    last = next((name for name in names if pipeline.models[name] == pipeline.result), names[-1])
    before, after = (
        {
            (row["format"], row["id"]): row["correct"]
            for row in read_lines(folder / f"{HELDOUT}{name}" / ANSWERS)
        }
        for name in (first, last)
    )
    # A task whose sandbox or sampler failed says nothing.
    pairs = [(before[task], after[task]) for task in before if None not in (before[task], after.get(task))]
    if first == last or not pairs:
        return
    gained, lost = pairs.count((False, True)), pairs.count((True, False))
    change, (low, high) = paired_difference(gained, lost, len(pairs))
    was, became = (sum(right) for right in zip(*pairs, strict=True))
    say(
        f"right in {len(pairs)} held-out tasks: {first} {was}, {last} {became}; "
        f"{100 * change:+.1f} points [{100 * low:.1f}, {100 * high:.1f}]"
    )


def next_commands(recipe: Recipe, folder: Path, model: Path) -> list[str]:
    """Return the commands that judge rows with the first and the trained model, compare both and report.

    The rows are those of `data.heldout` or else of `data.train`, if that is a file.
    """
    named = recipe.data.heldout if isinstance(recipe.data.heldout, Path) else recipe.data.train
    rows = data_path(named)
    judge = ["tirjudge", "judge", str(rows) if rows.is_file() else "ROWS.jsonl"]
    for name, column in recipe.data.columns.items():
        judge += ["--column", f"{name}={column}"]
    if recipe.data.labels:
        judge += shlex.split(labels_option(recipe.data.labels))
    before, after = (str(folder / name) for name in ("before.jsonl", "after.jsonl"))
    checks = any(one.name.startswith("checks") for one in recipe.environments.values())
    # A model without a note would write checks first, unlike the trained model.
    family = [] if checks or recipe.model.base in shipped_models() else ["--format", "tir"]
    commands = (
        [*judge, "--model", recipe.model.base, *family, "--output", before],
        [*judge, "--model", str(model), "--output", after],
        ["tirjudge", "compare", before, after],
        ["tirjudge", "report", str(folder), "-o", str(folder / "training.html")],
    )
    return [shlex.join(command) for command in commands]


def rows_line(counts: Mapping[str, Mapping[str, int]], limit: int | None) -> str:
    """Return one line about the training rows and about those that `data.max_prompt_tokens` leaves out."""
    rows, too_long = (sum(one[key] for one in counts.values()) for key in ("rows", "too_long"))
    line = f"{rows:,} training rows"
    if not too_long:
        return line
    by_judge = ", ".join(f"{one['too_long']:,} of {name}" for name, one in counts.items() if one["too_long"])
    parts = f" ({by_judge})" if by_judge else ""
    left_out = f"{too_long:,} with more than {limit:,} tokens of prompt (data.max_prompt_tokens) are left out"
    return f"{line}; {left_out}{parts}"
