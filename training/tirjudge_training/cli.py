"""`tirjudge train` and `tirjudge heldout`: from a command line to a run, and from errors to exit codes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import typer

from tirjudge.cli.errors import INTERRUPTED, USAGE, stop
from tirjudge.run_folder import Locked
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_training.comparison import compare
from tirjudge_training.config import BadRecipe, load, load_arms, shipped
from tirjudge_training.data import Data, DataConfig
from tirjudge_training.engine import RolloutConfig
from tirjudge_training.expected_rows import ExpectedRows
from tirjudge_training.generated import GeneratedData
from tirjudge_training.heldout import lines, measure
from tirjudge_training.log_line import log
from tirjudge_training.plan import NoRows
from tirjudge_training.plan import plan as planned
from tirjudge_training.processes import FirstFailed, Processes
from tirjudge_training.recipe import Recipe
from tirjudge_training.run import RunMismatch, counted, course_of, data_of
from tirjudge_training.run import train as run_train
from tirjudge_training.shrink import shrunk

FAILED = 1
LAUNCH = "launch"
"""Where the configurations of `accelerate launch` lie in this package."""
_ADVICE = "; a smaller micro_batch or max_tokens, in tables rl and sft, needs less memory"
MAX_TOKENS = 320
"""Of a miniature's measured trajectory."""


def train(
    recipe: Annotated[str, typer.Option(help="A shipped recipe's name, or a TOML file.")] = "mini",
    iterative: Annotated[
        bool,
        typer.Option("--iterative", help="TIR-Judge-Zero: RL, rejection sampling, SFT and RL, in rounds."),
    ] = False,
    control: Annotated[
        bool, typer.Option("--control", help="With --iterative: also as much RL without the rounds.")
    ] = False,
    distill: Annotated[
        bool, typer.Option("--distill", help="TIR-Judge-Distill: SFT on a teacher's dialogues, and RL.")
    ] = False,
    teacher: Annotated[
        str | None, typer.Option(metavar="MODEL", help="With --distill: an endpoint's name for it.")
    ] = None,
    teacher_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="With --distill: an OpenAI-compatible endpoint.")
    ] = None,
    no_tools: Annotated[
        bool, typer.Option("--no-tools", help="The text-only control: the same tasks, no programs.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="Short for --set model.base: a folder or hub id.")] = None,
    data: Annotated[Path | None, typer.Option(help="Short for --set data.train: a file of rows.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print stages, sizes, hours, memory and disk, and start nothing.")
    ] = False,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="See it run: a two-layer model of the architecture, two batches.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="The run folder; by default runs/RECIPE-SEED.")] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key: rl.steps=10.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set seed=N.")] = None,
    list_recipes: Annotated[bool, typer.Option("--list", help="Name the shipped recipes and stop.")] = False,
    launch_config: Annotated[
        Literal["fsdp2", "deepspeed"] | None,
        typer.Option(help="Say where this configuration of `accelerate launch` lies and stop."),
    ] = None,
) -> None:
    """Train a judge. The same command goes on where a stopped run was."""
    if list_recipes:
        for name in shipped():
            found = load(Recipe, name)
            print(f"{name}: {found.description}{' (never run)' if found.run == 'never' else ''}")
        return
    if launch_config:
        print(resources.files("tirjudge_training") / LAUNCH / f"{launch_config}.yaml")
        return
    short = {
        "method=iterative": iterative,
        "method=distill": distill,
        f"teacher.model={json.dumps(teacher)}": teacher is not None,
        f"teacher.base_url={json.dumps(teacher_base_url)}": teacher_base_url is not None,
        "iterate.control=true": control,
        "data.no_tools=1.0": no_tools,
        f"model.base={json.dumps(model)}": model is not None,
        f"data.train={json.dumps(str(data))}": data is not None,
        f"seed={seed}": seed is not None,
    }
    assignments = [*(assign or []), *(assignment for assignment, wanted in short.items() if wanted)]
    with _one_line_errors("train"):
        if iterative and distill:
            raise BadRecipe("--iterative and --distill exclude each other")
        processes = Processes.launched()
        config, arms = processes.first(
            lambda: (load(Recipe, recipe, assignments), load_arms(Recipe, recipe, assignments))
        )
        folder = output or Path("runs") / f"{Path(recipe).stem}-{config.seed}"
        _quiet_libraries(config.threads)
        if shrink:
            folder = output or folder.with_name(f"{folder.name}-shrunk")
            config, arms = processes.first(
                lambda: (
                    shrunk(config, folder),
                    {arm: shrunk(one, folder / arm) for arm, one in arms.items()},
                )
            )
        if plan:
            _print_plans(arms or {"": config}, folder)
            return
        words = [word for assignment in assignments for word in ("--set", assignment)]
        command = shlex.join(["tirjudge", "train", "--recipe", recipe, *words])
        if arms:
            compared = compare(arms, folder, command=command, say=log, processes=processes)
            result = compared.read_text(encoding="utf-8")
        else:
            result = f"{run_train(config, folder, command=command, say=log, processes=processes)}\n"
        if processes.rank == 0:
            print(result, end="")


def heldout(
    model: Annotated[Path, typer.Argument(help="A model folder that `tirjudge train` made.")],
    n: Annotated[int, typer.Option(help="Tasks of each format.")] = 500,
    seed: Annotated[int, typer.Option(help="Which tasks.")] = 0,
    no_tools: Annotated[
        bool, typer.Option("--no-tools", help="With the prompts that offer no tool.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Also write the numbers, by family, as JSON.")] = None,
) -> None:
    """Measure a miniature on tasks that its training held out.

    Their words, thresholds and wordings are new to it; it answers greedily; with 95 % intervals.
    """
    with _one_line_errors("heldout"):
        if not (model / "config.json").is_file():
            raise BadRecipe(f"{model} is no model folder: it has no config.json")
        _quiet_libraries(threads=1)
        data = GeneratedData(DataConfig(no_tools=float(no_tools)))
        rollout = RolloutConfig(max_tokens=MAX_TOKENS)
        found = measure(str(model), data.heldout(n, seed), data.environments, rollout)
        for line in lines(found):
            print(line)
        if output is not None:
            output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _one_line_errors(command: str) -> Iterator[None]:
    try:
        yield
    except FirstFailed:
        raise typer.Exit(FAILED) from None
    except (BadRecipe, RunMismatch) as error:
        stop(command, error, USAGE)
    except ImportError as error:
        stop(command, f"training needs `pip install tirjudge[train]`: {error}", FAILED)
    except (Locked, MemoryError, OSError, RuntimeError, SandboxUnavailable) as error:
        stop(command, f"{error}{_ADVICE if _starved(error) else ''}", FAILED)
    except KeyboardInterrupt:
        stop(command, "interrupted; the same command goes on from the last checkpoint", INTERRUPTED)


def _starved(error: Exception) -> bool:
    """Out of memory, in the words of Python, CUDA or torch's allocator on a CPU."""
    text = str(error)
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def _print_plans(recipes: Mapping[str, Recipe], folder: Path) -> None:
    for arm, recipe in recipes.items():
        if arm:
            print(f"arm {arm}:")
        data = _rows(recipe)
        whole = recipe if isinstance(data, NoRows) else counted(recipe, data)
        for line in planned(whole, course_of(whole), data, folder / arm):
            print(line)


def _rows(recipe: Recipe) -> Data:
    """A plan can be made before there are rows, and counts those with too long a prompt too."""
    every = recipe.data.model_copy(update={"max_prompt_tokens": None})
    try:
        return data_of(recipe.model_copy(update={"data": every}))
    except FileNotFoundError:
        tasks = recipe.rates.tasks
        if not tasks:
            return NoRows()
    try:
        return ExpectedRows(every, recipe.environments, tasks)
    except ValueError as error:
        raise BadRecipe(str(error)) from None


def _quiet_libraries(threads: int) -> None:
    """Their progress bars and notices would drown ours."""
    import datasets
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
