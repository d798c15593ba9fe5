"""An RL stage of a run folder that verl trains: its files, verl's process, and its result."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tirjudge.ray_cluster.connection import connect, nodes
from tirjudge.storage.durable_files import RunFolder, write_atomically
from tirjudge.storage.json_lines import JsonObject
from tirjudge_training import model_folder
from tirjudge_training.data.base import Data
from tirjudge_training.launch import verl_data, verl_snapshots
from tirjudge_training.launch.verl_config import (
    CONFIG,
    LOOPS,
    METRICS,
    TRAIN,
    VALIDATION,
    Backend,
    Machines,
    verl_config,
)
from tirjudge_training.methods import Pipeline
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import CONFIG as RECIPE
from tirjudge_training.recipe_file import BadRecipe, to_toml
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.run.model_size import shape
from tirjudge_training.run.preflight import TooSmall
from tirjudge_training.stages.base import DONE, MODEL, Run, Stage
from tirjudge_training.stages.reinforcement import Reinforcement

FOLDER = "verl"
"""The subfolder of a stage with verl's configuration, rows, checkpoints and metrics."""
VERSIONS = ("0.9.1", "0.10")
"""The first version of verl that this works with, and the first that it was not written for."""
NEEDED = {"verl": "verl", "transfer_queue": "TransferQueue", "vllm": "vllm"}
"""Modules that verl's trainer imports, and the packages that have them."""
_OLD_TRL = 1
"""verl imports a class of TRL, if TRL is there, that its version 1 has no more."""


class VerlMissing(BadRecipe):
    """verl cannot run here; the message is one line and says what to install."""


class VerlFailed(RuntimeError):
    """verl ended before its last step; the message is one line and names its log."""


def due(pipeline: Pipeline, folder: Path) -> Reinforcement | None:
    """Return the first RL stage that is not done; None if all are.

    Raises BadRecipe for a method without RL, and if the stage starts from a model that is not there yet, or
    trains on rows that are not screened yet.
    """
    stages: list[Stage] = list(pipeline.stages)
    trained = [stage for stage in stages if isinstance(stage, Reinforcement)]
    if not trained:
        raise BadRecipe(
            "this recipe's method has no RL stage, and verl trains no other: use `tirjudge train`"
        )
    stage = next((one for one in trained if not (folder / one.name / DONE).exists()), None)
    if stage is not None and stage.start is not None and not (folder / stage.start / DONE).exists():
        raise BadRecipe(
            f"{stage.name} starts from the model of {stage.start}, which is not done in {folder}: "
            "run `tirjudge train` with the same recipe and --output first"
        )
    if stage is not None and stage.screen is not None and not (folder / stage.screen / DONE).exists():
        raise BadRecipe(
            f"{stage.name} trains on the rows that {stage.screen} leaves, which is not done in {folder}: "
            "run `tirjudge train` with the same recipe and --output first"
        )
    return stage


def check_installed() -> None:
    """Raise VerlMissing if verl or a package that its trainer imports is missing, or has another version."""
    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if "verl" in missing:
        raise VerlMissing(
            "verl is not installed: `pip install 'tirjudge[verl]'`, in an environment without the extra train"
        )
    found = version("verl")
    if not _numbers(VERSIONS[0]) <= _numbers(found) < _numbers(VERSIONS[1]):
        raise VerlMissing(
            f"verl {found} is installed, and this needs {VERSIONS[0]} or later, below {VERSIONS[1]}: "
            f"`pip install 'verl=={VERSIONS[0]}'`"
        )
    try:
        trl = version("trl")
    except PackageNotFoundError:
        trl = ""
    if trl and _numbers(trl)[0] >= _OLD_TRL:
        raise VerlMissing(
            f"verl {found} fails beside trl {trl}: install tirjudge[verl] in an environment without the "
            "extra train"
        )
    if missing:
        raise VerlMissing(f"verl's trainer needs {', '.join(missing)}: `pip install {' '.join(missing)}`")


def check_machines(machines: Machines) -> None:
    """Raise BadRecipe if the Ray cluster cannot be reached, and TooSmall if there are too few GPUs."""
    if machines.address is None:
        import torch

        counts = [torch.cuda.device_count()]
        where = "this machine has"
    else:
        try:
            ray = connect(machines.address)
        except ValueError as error:
            raise BadRecipe(str(error)) from None
        counts = [node.gpus for node in nodes(ray)]
        ray.shutdown()
        where = f"the cluster at {machines.address} has"
    enough = sum(count >= machines.gpus_per_node for count in counts)
    if enough < machines.nodes:
        gpus = ", ".join(map(str, counts)) or "no"
        more = "" if machines.address else "; a cluster's is --address HOST:PORT"
        raise TooSmall(
            f"training takes {machines.nodes} x {machines.gpus_per_node} GPUs (--nodes, --gpus-per-node), "
            f"and {where} {gpus}{more}"
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """The configuration and rows of a stage for verl, before any of it is written."""

    folder: Path
    """The absolute path of the stage's folder `verl`."""
    stage: Reinforcement
    config: Mapping[str, Any]
    loops: Sequence[Mapping[str, Any]]
    tasks: Mapping[str, Sequence[FormattedTask]]
    """The tasks of each Parquet file."""

    def write(self, data: Data, overrides: Sequence[str] = ()) -> list[str]:
        """Write the files and return the command that trains the stage."""
        import yaml

        self.folder.mkdir(parents=True, exist_ok=True)
        for name, tasks in self.tasks.items():
            verl_data.write_parquet(self.folder / name, verl_data.verl_rows(data, tasks))
        for name, content in ((LOOPS, self.loops), (CONFIG, self.config)):
            write_atomically(self.folder / name, yaml.safe_dump(content, sort_keys=False))
        write_atomically(self.folder.parent / RECIPE, to_toml(self.stage))
        place = ["--config-path", str(self.folder), "--config-name", Path(CONFIG).stem]
        return [sys.executable, "-m", "verl.trainer.main_ppo", *place, *overrides]


def prepare(recipe: Recipe, stage: Reinforcement, run: Run, machines: Machines) -> Prepared:
    """Return verl's configuration and rows of a stage.

    Raises BadRecipe for a setting that verl lacks and for too few rows, and TooSmall if the model does not
    fit.
    """
    folder = (run.path / stage.name / FOLDER).absolute()
    start = run.model(stage.start)
    start = str(Path(start).absolute()) if Path(start).is_dir() else start
    tasks = {TRAIN: list(verl_data.training_tasks(run.data, stage, stage.chosen(run)))}
    if stage.validation is not None and (held_back := run.data.validation(stage.validation.n)):
        tasks[VALIDATION] = held_back
    rows = verl_data.rows_of(run.data, tasks[TRAIN])
    config = verl_config(
        recipe,
        stage,
        start=start,
        shape=shape(start),
        rows=rows,
        validated=VALIDATION in tasks,
        machines=machines,
        folder=folder,
        enable_thinking=run.enable_thinking,
        resumed=_steps(folder),
    )
    batch = config["data"]["train_batch_size"]
    if rows.count < batch:
        raise BadRecipe(f"data.train: {rows.count} rows are fewer than a batch of {batch}: lower rl.groups")
    return Prepared(folder, stage, config, verl_data.agent_loops(recipe, stage, run.data), tasks)


def train(stage: Reinforcement, run: Run, command: Sequence[str], *, backend: Backend) -> None:
    """Run verl's trainer and record its stage as our own trainer would. Raises VerlFailed.

    verl resumes from its last checkpoint if it was interrupted.
    """
    path = run.path / stage.name
    folder = (path / FOLDER).absolute()
    with RunFolder(path) as stage_folder:
        steps = _steps(folder)
        # A command that was killed may have left a finished training whose result is not recorded yet.
        if steps < stage.config.steps:
            status = subprocess.run(command, check=False).returncode
            steps = _steps(folder)
            if status or steps < stage.config.steps:
                raise VerlFailed(
                    f"{stage.name}: verl ended with code {status}, and its last checkpoint is step {steps} "
                    f"of {stage.config.steps}; its messages are above, and the same command resumes it"
                )
        result = record(stage, stage_folder, run, backend=backend)
        # Written last: a stage without this file is resumed.
        stage_folder.write(DONE, json.dumps(result, indent=2) + "\n")


def record(stage: Reinforcement, stage_folder: RunFolder, run: Run, *, backend: Backend) -> JsonObject:
    """Turn verl's checkpoint and validations into the files that the next stages read; returns the result."""
    folder = (stage_folder.path / FOLDER).absolute()
    saved = verl_snapshots.checkpoint(folder)
    assert saved is not None  # checked by the caller
    step, checkpoint = saved
    model = stage_folder.path / MODEL
    kept = verl_snapshots.snapshot(folder, step)
    # A validated last step was converted already, as a snapshot.
    if kept.is_dir():
        shutil.copytree(kept, model, dirs_exist_ok=True)
    else:
        verl_snapshots.merge(checkpoint, model, backend)
    if stage.validation is not None:
        verl_snapshots.record_validation(stage_folder, folder)
        verl_snapshots.drop_snapshots(folder, keep=stage.validation.keep)
    for made in (model, *kept.parent.glob("step-*")):
        model_folder.adopt(made, start=run.model(stage.start), note=run.note)
    timed = {
        row["training/global_step"]: row.get("timing_s/step", 0.0)
        # In the order of the resumptions, so that a repeated step counts once, with its last time.
        for path in sorted(folder.glob(f"*-{METRICS}"), key=lambda path: int(path.name.partition("-")[0]))
        for row in verl_snapshots.metrics(path)
        if "training/global_step" in row
    }
    return {"steps": step, "seconds": sum(timed.values()), "trainer": f"verl {version('verl')}"}


def _steps(folder: Path) -> int:
    saved = verl_snapshots.checkpoint(folder)
    return 0 if saved is None else saved[0]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdecimal())
