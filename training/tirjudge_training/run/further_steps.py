"""RL stages that go on with more steps, also finished ones, whose result is then made again.

A finished stage goes on after its last checkpoint, and what came from its model begins again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tirjudge.storage.run_settings import OtherSettings
from tirjudge_training.methods import Pipeline
from tirjudge_training.recipe_file import CONFIG, recorded_config
from tirjudge_training.rl.training_loop import CHECKPOINTS
from tirjudge_training.stages.base import DONE, SAMPLES, Say, Stage
from tirjudge_training.stages.reinforcement import Reinforcement

Longer = list[tuple[Reinforcement, list[Stage]]]
"""Finished RL stages that are to go on, each with the begun stages that depend on its model."""


def longer(folder: Path, pipeline: Pipeline, *, repeat: bool) -> Longer:
    """Return the finished RL stages of which more steps are wanted.

    Raises OtherSettings if a training or samples that depend on such a stage would be lost, unless `repeat`
    allows it, and if the learning rates of the earlier steps depend on the number of steps.
    """
    found = []
    for stage in pipeline.stages:
        path = folder / stage.name
        if not isinstance(stage, Reinforcement) or not (path / CONFIG).exists():
            continue
        if stage.config.steps <= recorded_config(path / CONFIG)["config"]["steps"]:
            continue
        if stage.config.decay:
            raise OtherSettings(
                f"rl.steps: with rl.decay the rates of {stage.name} in {folder} fell towards its former last "
                "step: repeat the former number, or choose another --output"
            )
        if not (path / DONE).exists():
            continue
        later = [one for one in _dependent(pipeline, stage) if (folder / one.name).exists()]
        lost = [one.name for one in later if _costly(folder / one.name)]
        if not (path / CHECKPOINTS).exists():
            lost.insert(0, stage.name)
        if lost and not repeat:
            raise OtherSettings(
                f"rl.steps: with more steps of {stage.name}, stages of {folder} would begin again: "
                f"choose another --output, or repeat them with --repeat ({', '.join(lost)})"
            )
        found.append((stage, later))
    return found


def reopen(folder: Path, stages: Longer, say: Say) -> None:
    """Let the finished RL stages go on, and what depends on them begin again."""
    for stage, later in stages:
        for one in later:
            say(f"{one.name}: begins again, since {stage.name} goes on")
            shutil.rmtree(folder / one.name, ignore_errors=True)
        # Last, so that a kill in between leaves a stage that is still to go on.
        (folder / stage.name / DONE).unlink(missing_ok=True)


def _costly(stage: Path) -> bool:
    """Return True if a stage has trained, or has samples, of several processes too."""
    return (stage / CHECKPOINTS).exists() or any(stage.glob(f"{Path(SAMPLES).stem}*"))


def _dependent(pipeline: Pipeline, stage: Stage) -> list[Stage]:
    """Return the later stages whose input is made by a stage, directly or not."""
    names, found = {stage.name}, []
    for one in pipeline.stages[pipeline.stages.index(stage) + 1 :]:
        inputs = {one.start, getattr(one, "stage", None), *getattr(one, "samples", ())}
        if inputs & names:
            names.add(one.name)
            found.append(one)
    return found
