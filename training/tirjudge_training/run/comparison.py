"""Comparisons of several arms: each is trained in turn, and their accuracies are put in one table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tirjudge.console_text import markdown_table
from tirjudge_training.data.base import TRAIN
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.heldout import percentage
from tirjudge_training.methods import DEMONSTRATIONS, HELDOUT, WARM_UP, Pipeline, pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.run.context import counted, data_of
from tirjudge_training.run.run import train
from tirjudge_training.stages.base import DONE, MODEL, Say

COMPARISON = "comparison.md"


def compare(
    arms: Mapping[str, Recipe], folder: Path, *, repeat: bool = False, say: Say, processes: Processes = ALONE
) -> Path:
    """Train every arm in `folder`/ARM, or resume; returns the file with the table.

    A warm-up that several arms have in common is done once.
    """
    with processes.folder(folder) as run_folder:
        for name, recipe in arms.items():
            # Copied before training, which then finds the stage done.
            processes.first(partial(_copy_warm_up, arms, name, folder))
            train(recipe, folder / name, repeat=repeat, say=_named(say, name), processes=processes)
        run_folder.write(COMPARISON, "\n".join(table(arms, folder)) + "\n")
    return folder / COMPARISON


def table(arms: Mapping[str, Recipe], folder: Path) -> Iterator[str]:
    """Yield Markdown: accuracy per arm, model and judge, by domain, with 95 % intervals."""
    pipelines = {name: pipeline_of(_as_run(recipe)) for name, recipe in arms.items()}
    rows = [row for name, pipeline in pipelines.items() for row in _rows(name, pipeline, folder / name)]
    if not rows:
        yield "No arm was measured, since data.heldout names no rows. The models of the arms:\n"
        yield from (f"- `{name}/{pipeline.result}/{MODEL}`" for name, pipeline in pipelines.items())
        return
    domains = sorted({domain for _, found in rows for domain in found["domains"]})
    head = ["arm", "model", "judge", "all", *domains, "calls per verdict"]
    yield from markdown_table(head, ([*names, *_cells(found, domains)] for names, found in rows))


def _cells(found: Mapping[str, Any], domains: Sequence[str]) -> Iterator[str]:
    yield percentage(found["accuracy"])
    for part in map(found["domains"].get, domains):
        yield "-" if part is None else percentage(part["accuracy"])
    calls = found["calls_per_verdict"]
    yield "-" if calls is None else f"{calls:.2f}"


def _as_run(recipe: Recipe) -> Recipe:
    """Return the recipe without a warm-up on the training rows if they demonstrate nothing."""
    return counted(recipe, data_of(recipe)) if recipe.data.demonstrations == TRAIN else recipe


def _rows(arm: str, pipeline: Pipeline, folder: Path) -> Iterator[tuple[Sequence[str], Mapping[str, Any]]]:
    for model in pipeline.models:
        found = json.loads((folder / f"{HELDOUT}{model}" / DONE).read_text(encoding="utf-8"))
        for judge, one in found.items():
            yield (arm, model, judge), one


def _named(say: Say, arm: str) -> Say:
    return lambda line: say(f"{arm}/{line}")


def _copy_warm_up(arms: Mapping[str, Recipe], arm: str, folder: Path) -> None:
    """Copy the finished warm-up of an earlier arm with the same warm-up settings and seed."""
    own = folder / arm / WARM_UP
    # The arm has begun or finished its own warm-up, which training resumes.
    if own.exists():
        return
    # The stage holds its whole configuration, so equal stages leave equal models.
    same = (other for other in arms if _warm_up(arms[other]) == _warm_up(arms[arm]))
    done = (folder / other / WARM_UP for other in same if (folder / other / WARM_UP / DONE).exists())
    if (found := next(done, None)) is not None:
        own.parent.mkdir(exist_ok=True)
        # Renamed when complete, so that a kill leaves no half of a copy.
        fresh = own.with_name(f".{WARM_UP}")
        shutil.copytree(found, fresh, dirs_exist_ok=True)
        fresh.rename(own)


def _warm_up(recipe: Recipe) -> Any:
    """Return all that the model of the warm-up depends on; None without one."""
    stages = pipeline_of(recipe).stages
    names = [stage.name for stage in stages]
    if WARM_UP not in names:
        return None
    opening = stages[: names.index(WARM_UP) + 1]
    if DEMONSTRATIONS not in names:
        return opening[-1]
    # The demonstrations also depend on the prompts, and on the rows and on which of them get tools.
    return opening, recipe.model, recipe.environments, recipe.data
