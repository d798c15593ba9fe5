"""The command `tirjudge train`, and the exit codes of its errors."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel

from tirjudge.cli.output import INTERRUPTED, USAGE, examples, log, option, stop
from tirjudge.storage.json_lines import BadLine, Locked
from tirjudge.storage.run_settings import OtherSettings
from tirjudge.storage.settings_text import Damaged
from tirjudge_sandbox import PackageMissing, SandboxUnavailable
from tirjudge_training.data.own_rows import MissingRows
from tirjudge_training.distributed.processes import FirstFailed, Processes
from tirjudge_training.recipe_file import BadRecipe, load, load_arms, quoted, shipped

if TYPE_CHECKING:  # the help loads nothing of the training itself
    from tirjudge_training.data.base import Data
    from tirjudge_training.recipe import Recipe

FAILED = 1
SMOL, ADAPT = "smol", "adapt"
"""The recipes that train without `--recipe`, and with `--data` alone."""
LAUNCH = "launch"
"""The folder of this package with configurations of `accelerate launch`."""
_ADVICE = "; a smaller micro_batch or max_tokens in the tables rl and sft needs less memory"

Assignments = Annotated[
    list[str] | None,
    option(
        "Recipe",
        "Override a key of the recipe, such as rl.steps=10; `KEY=` takes an optional one out.",
        "--set",
        metavar="KEY=VALUE",
    ),
]
"""The options that change keys of a recipe."""


@examples(
    "tirjudge train --data labels.jsonl",
    "tirjudge train --recipe smol",
    "tirjudge train --iterative --recipe tir-judge-zero-8b --data rows.jsonl --plan",
)
def train(
    recipe: Annotated[
        str | None,
        option("Recipe", "A shipped recipe, or a TOML file; by default adapt with --data, and smol without."),
    ] = None,
    arm: Annotated[
        list[str] | None,
        option("Recipe", "Train only this arm of a recipe that compares arms; repeatable.", metavar="NAME"),
    ] = None,
    iterative: Annotated[
        bool,
        option("Method", "TIR-Judge-Zero: RL, then rounds of rejection sampling, SFT and RL.", "--iterative"),
    ] = False,
    control: Annotated[
        bool,
        option("Method", "With --iterative: also train as many RL steps without the rounds.", "--control"),
    ] = False,
    distill: Annotated[
        bool, option("Method", "TIR-Judge-Distill: SFT on a teacher's dialogues, then RL.", "--distill")
    ] = False,
    teacher: Annotated[
        str | None, option("Method", "With --distill: the teacher's name at its endpoint.", metavar="MODEL")
    ] = None,
    teacher_base_url: Annotated[
        str | None,
        option("Method", "With --distill: the teacher's OpenAI-compatible endpoint.", metavar="URL"),
    ] = None,
    no_tools: Annotated[
        bool, option("Method", "Train the text-only control: the same tasks without programs.", "--no-tools")
    ] = False,
    model: Annotated[
        str | None,
        option("Model", "Short for --set model.base=...: a folder, a GGUF file, a hub id or a short name."),
    ] = None,
    data: Annotated[
        Path | None, option("Rows", "Short for --set data.train=...: a file of labelled rows.")
    ] = None,
    plan: Annotated[
        bool, option("Trying out", "Print stages, sizes, tokens, hours and memory, and exit.", "--plan")
    ] = False,
    shrink: Annotated[
        bool, option("Trying out", "Try the recipe out with two layers and two batches, on CPU.", "--shrink")
    ] = False,
    output: Annotated[
        Path | None, option("Output", "The run folder; the default is runs/RECIPE-SEED.")
    ] = None,
    repeat: Annotated[
        bool,
        option("Output", "Repeat the stages that depend on rows or weights that have changed.", "--repeat"),
    ] = False,
    assign: Assignments = None,
    seed: Annotated[int | None, option("Recipe", "Short for --set seed=N.")] = None,
    list_recipes: Annotated[bool, option("Recipe", "List the shipped recipes and exit.", "--list")] = False,
    show_all: Annotated[
        bool, option("Recipe", "With --list: also the recipes that were never run.", "--all")
    ] = False,
    as_json: Annotated[bool, option("Recipe", "With --list: print all as JSON.", "--json")] = False,
    launch_config: Annotated[
        Literal["fsdp2"] | None,
        option("Trying out", "Print the path of a configuration for `accelerate launch` and exit."),
    ] = None,
) -> None:
    """Train a judge. Run the same command again to resume a stopped run."""
    if list_recipes:
        _list_recipes(as_json=as_json, every=show_all)
        return
    for name, wanted in (("--all", show_all), ("--json", as_json)):
        if wanted:
            stop("train", f"{name} belongs to a list: tirjudge train --list {name}", USAGE)
    if launch_config:
        print(resources.files("tirjudge_training") / LAUNCH / f"{launch_config}.yaml")
        return
    from tirjudge_training.recipe import Recipe
    from tirjudge_training.run.comparison import compare
    from tirjudge_training.run.results import next_commands
    from tirjudge_training.run.run import train as run_train
    from tirjudge_training.run.shrink import shrunk

    # Short options become assignments, so that the recipe is the only place of settings.
    short = {
        "method=iterative": iterative,
        "method=distill": distill,
        f"teacher.model={quoted(teacher)}": teacher is not None,
        f"teacher.base_url={quoted(teacher_base_url)}": teacher_base_url is not None,
        "iterate.control=true": control,
        "data.no_tools=1.0": no_tools,
        f"model.base={quoted(model)}": model is not None,
        f"data.train={quoted(str(data))}": data is not None,
        f"seed={seed}": seed is not None,
    }
    recipe = recipe or (SMOL if data is None else ADAPT)
    assignments = [*(assign or []), *(assignment for assignment, wanted in short.items() if wanted)]
    with one_line_errors("train"):
        if iterative and distill:
            raise BadRecipe("--iterative and --distill exclude each other")
        processes = Processes.launched()
        config, arms = processes.first(
            lambda: (load(Recipe, recipe, assignments), load_arms(Recipe, recipe, assignments, arm or ()))
        )
        methods = {one.method for one in (config, *arms.values())}
        for name, wanted, method in (
            ("--control", control, "iterative"),
            ("--teacher", teacher is not None, "distill"),
            ("--teacher-base-url", teacher_base_url is not None, "distill"),
        ):
            if wanted and method not in methods:
                raise BadRecipe(f"{name}: no effect without --{method}")
        folder = run_path(recipe, config, output)
        if folder.exists() and not folder.is_dir():
            raise BadRecipe(f"--output: {folder} is a file: name a folder")
        _quiet_libraries(config.threads)
        if shrink:
            folder = output or folder.with_name(f"{folder.name}-shrunk")
            config, arms = processes.first(
                lambda: (
                    shrunk(config, folder),
                    {name: shrunk(arm, folder / name) for name, arm in arms.items()},
                )
            )
        if plan:
            _print_plans(arms or {"": config}, folder)
            return
        if arms:
            made = compare(arms, folder, repeat=repeat, say=log, processes=processes)
        else:
            made = run_train(config, folder, repeat=repeat, say=log, processes=processes)
        if processes.rank == 0:  # the only process that has surely written the table of the arms
            if not arms:
                log("next, to compare both judges, if possible on rows that the training did not see:")
                for command in next_commands(config, folder, made):
                    print(f"  {command}", file=sys.stderr)
            print(made.read_text(encoding="utf-8") if arms else f"{made}\n", end="")


def run_path(recipe: str, config: Recipe, output: Path | None) -> Path:
    """Return the folder of a run: `output`, or that of the recipe and its seed."""
    return output or Path("runs") / f"{Path(recipe).stem}-{config.seed}"


@contextmanager
def one_line_errors(command: str) -> Iterator[None]:
    """Turn the errors that a user can cause into one line and an exit code."""
    try:
        yield
    except FirstFailed:  # the first process prints the message
        raise typer.Exit(FAILED) from None
    except BadLine as error:
        stop(command, f"{error}: put the former file back, or delete the folder of its stage", USAGE)
    except (BadRecipe, Damaged, MissingRows, OtherSettings, PackageMissing) as error:
        stop(command, error, USAGE)
    except ImportError as error:
        stop(command, f"training needs `pip install 'tirjudge[train]'`: {error}", USAGE)
    except (Locked, MemoryError, OSError, RuntimeError, SandboxUnavailable) as error:
        stop(command, f"{error}{_ADVICE if _out_of_memory(error) else ''}", FAILED)
    except KeyboardInterrupt as interrupted:
        # The message of an interrupted training says what is lost, and where the same command goes on.
        stop(command, str(interrupted) or "interrupted", INTERRUPTED)


def _out_of_memory(error: Exception) -> bool:
    """Return True if memory ran out, in the words of Python, CUDA or torch's CPU allocator."""
    text = str(error)
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


class _Listed(BaseModel):
    """The keys of a recipe that a list shows; reading all keys would import the whole training."""

    description: str
    run: str | None = None


def _list_recipes(*, as_json: bool, every: bool) -> None:
    recipes = {name: load(_Listed, name) for name in shipped()}
    if as_json:
        records = [
            {"name": name, "description": recipe.description, "run": recipe.run}
            for name, recipe in recipes.items()
        ]
        print(json.dumps(records, indent=2))
        return
    never = {name: recipe for name, recipe in recipes.items() if recipe.run == "never"}
    for name, recipe in recipes.items():
        if name not in never:
            print(f"{name}: {recipe.description}")
    for name, recipe in never.items() if every else ():
        print(f"{name}: {recipe.description} (never run)")
    if not every:
        print(f"{len(never)} further recipes have the values of papers and were never run: --list --all")


def _print_plans(recipes: Mapping[str, Recipe], folder: Path) -> None:
    from tirjudge_training.methods import pipeline_of
    from tirjudge_training.run.context import counted
    from tirjudge_training.run.measured_rates import with_measured_rates
    from tirjudge_training.run.plan import NoRows
    from tirjudge_training.run.plan import plan as planned

    for arm, recipe in recipes.items():
        if arm:
            print(f"arm {arm}:")
        data = _rows(recipe)
        # Without rows, epochs cannot be converted to steps, and the plan says so.
        resolved = recipe if isinstance(data, NoRows) else counted(recipe, data)
        rates, origin = with_measured_rates(resolved, data, say=log)
        for line in planned(rates, pipeline_of(resolved), data, folder / arm, origin):
            print(line)


def _rows(recipe: Recipe) -> Data:
    """Return the data for a plan, which needs no rows and includes those with too long a prompt.

    Raises MissingRows if there are training rows, and rows of another kind are missing.
    """
    from tirjudge_training.data.base import data_path
    from tirjudge_training.data.own_rows import ExpectedRows
    from tirjudge_training.run.context import data_of
    from tirjudge_training.run.plan import NoRows

    every = recipe.data.model_copy(update={"max_prompt_tokens": None})
    try:
        return data_of(recipe.model_copy(update={"data": every}))
    except MissingRows as error:
        if error.path != data_path(recipe.data.train):
            raise
        tasks = recipe.rates.tasks
        if not tasks:
            return NoRows()
    try:
        return ExpectedRows(every, recipe.environments, tasks)
    except ValueError as error:
        raise BadRecipe(str(error)) from None


def _quiet_libraries(threads: int) -> None:
    """Turn off the progress bars, notices and warnings of libraries, which would drown the progress lines.

    Python's option -W, or PYTHONWARNINGS, shows the warnings.
    """
    import datasets
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    for library in ("accelerate", "datasets", "huggingface_hub", "peft", "torch", "trl"):
        logging.getLogger(library).setLevel(logging.ERROR)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
