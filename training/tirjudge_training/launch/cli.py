"""The command `tirjudge launch`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tirjudge.cli.output import examples, log, option
from tirjudge_training.cli import Assignments, one_line_errors, run_path
from tirjudge_training.recipe_file import BadRecipe, load, load_arms

if TYPE_CHECKING:  # the help loads nothing of the training itself
    from tirjudge_training.launch.verl_config import Machines
    from tirjudge_training.recipe import Recipe

TRAINER = "rl.trainer=verl"


@examples(
    "tirjudge launch verl --recipe tir-judge-zero-8b --dry-run",
    "tirjudge launch verl --recipe j1-70b --backend megatron --nodes 4 --address 10.0.0.1:6379",
)
def launch(
    trainer: Annotated[Literal["verl"], typer.Argument(help="The trainer.")],
    recipe: Annotated[str, option("Recipe", "The name of a shipped recipe, or a TOML file.")],
    assign: Assignments = None,
    override: Annotated[
        list[str] | None,
        option(
            "Recipe",
            "Override a key of verl's own configuration, in hydra's words.",
            "--override",
            metavar="KEY=VALUE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "Output",
            "The run folder, on a file system that all nodes share; the default is runs/RECIPE-SEED.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        option("Output", "Write verl's configuration and rows, print its command, and stop.", "--dry-run"),
    ] = False,
    backend: Annotated[
        Literal["fsdp2", "megatron"], option("Machines", "What distributes the trained weights.")
    ] = "fsdp2",
    nodes: Annotated[int, option("Machines", "Machines.", min=1)] = 1,
    gpus_per_node: Annotated[int, option("Machines", "GPUs of each machine.", min=1)] = 8,
    address: Annotated[
        str | None,
        option(
            "Machines",
            "A Ray cluster; auto is the cluster of this machine.  [default: start a cluster here]",
            metavar="HOST:PORT",
        ),
    ] = None,
) -> None:
    """Train the next RL stage of a recipe with verl, on the machines of a Ray cluster.

    The same command resumes it. `tirjudge train` with the same recipe and --output does the other stages.
    """
    from tirjudge_training.launch import verl_stage
    from tirjudge_training.launch.verl_config import Machines, check_settings
    from tirjudge_training.methods import pipeline_of
    from tirjudge_training.recipe import Recipe

    assignments = [*(assign or []), TRAINER]
    machines = Machines(nodes, gpus_per_node, address, backend)
    with one_line_errors("launch"):
        config = load(Recipe, recipe, assignments)
        if load_arms(Recipe, recipe, assignments):
            raise BadRecipe(f"{recipe} compares several arms, which only `tirjudge train` does")
        if nodes > 1 and address is None and not dry_run:
            raise BadRecipe(
                f"--nodes {nodes}: several machines are a Ray cluster: give its --address HOST:PORT"
            )
        folder = run_path(recipe, config, output)
        check_settings(config, config.rl, machines)
        if verl_stage.due(pipeline_of(config), folder) is None:
            log(f"every RL stage of {folder} is done")
        elif _trained(config, folder, machines, override or [], dry_run=dry_run):
            return
        again = ["tirjudge", "train", "--recipe", recipe, "--output", str(folder)]
        again += [word for one in assignments for word in ("--set", one)]
        log(f"the other stages: {shlex.join(again)}")


def _trained(
    recipe: Recipe, folder: Path, machines: Machines, overrides: list[str], *, dry_run: bool
) -> bool:
    """Train the next RL stage; True if its command was only printed."""
    from tirjudge.storage.durable_files import RunFolder
    from tirjudge_training.launch import verl_stage
    from tirjudge_training.methods import pipeline_of
    from tirjudge_training.run.context import context, counted, data_of, with_dtype
    from tirjudge_training.run.run import claim

    if not dry_run:
        verl_stage.check_installed()
        verl_stage.check_machines(machines)
    recipe = with_dtype(recipe, folder)  # as `tirjudge train` stores it in the folder that both use
    data = data_of(recipe)
    counts = counted(recipe, data)
    stage = verl_stage.due(pipeline_of(counts), folder)
    assert stage is not None  # checked by the caller
    run = context(recipe, data, folder, log)
    prepared = verl_stage.prepare(counts, stage, run, machines)
    with RunFolder(folder) as run_folder:
        claim(run_folder, recipe, pipeline_of(counts), data, say=log)
        command = prepared.write(data, overrides)
        if dry_run:
            print(shlex.join(command))
            return True
        log(f"{stage.name}: {shlex.join(command)}")
        verl_stage.train(stage, run, command, backend=machines.backend)
        log(f"{stage.name}: done")
    return False
