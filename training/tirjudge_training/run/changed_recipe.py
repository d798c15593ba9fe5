"""A run that goes on with other numbers: more steps or rounds, or a lower rate.

More rounds are stages after those that are there. A finished RL stage of which more steps are wanted goes on
after its last checkpoint, and what came from its model begins again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tirjudge.storage.durable_files import write_atomically
from tirjudge.storage.json_lines import encode_line, read_lines
from tirjudge.storage.run_settings import FALLS, RISES, OtherSettings
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import EVENTS
from tirjudge_training.heldout import SNAPSHOTS, VALIDATION, best_steps
from tirjudge_training.methods import HELDOUT, REJECTION, TUNED, Pipeline
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import CONFIG, recorded_config
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.training_loop import CHECKPOINTS
from tirjudge_training.stages.base import DONE, SAMPLES, Say, Stage
from tirjudge_training.stages.reinforcement import Reinforcement

RATES = tuple(
    name
    for name, field in RlConfig.model_fields.items()
    if name != "steps" and any(mark in field.metadata for mark in (RISES, FALLS))
)
"""The settings of RL that may change within a stage, and then change its weights."""
Longer = list[tuple[Reinforcement, list[Stage]]]
"""Finished RL stages that are to go on, each with the begun stages that depend on its model."""


def longer(folder: Path, pipeline: Pipeline, *, repeat: bool) -> Longer:
    """Return the finished RL stages of which more steps are wanted.

    Raises OtherSettings if a training or samples that depend on such a stage would be lost, unless `repeat`
    allows it.
    """
    found = []
    for stage in pipeline.stages:
        if not isinstance(stage, Reinforcement) or stage.config.steps <= _steps_done(folder / stage.name):
            continue
        later = [one for one in _dependent(pipeline, stage) if (folder / one.name).exists()]
        lost = [one.name for one in later if _costly(folder / one.name)]
        if not (folder / stage.name / CHECKPOINTS).exists():
            lost.insert(0, stage.name)
        if lost and not repeat:
            raise OtherSettings(
                f"rl.steps: with more steps of {stage.name}, stages of {folder} would begin again: "
                f"choose another --output, or repeat them with --repeat ({', '.join(lost)})"
            )
        found.append((stage, later))
    return found


def refuse_unused(folder: Path, recipe: Recipe, pipeline: Pipeline) -> None:
    """Raise OtherSettings for another rate, clip or weight of the KL divergence if no RL stage is left.

    The folder would record a setting that none of its weights came from.
    """
    stages = [stage for stage in pipeline.stages if isinstance(stage, Reinforcement)]
    if not (folder / CONFIG).exists() or not all((folder / stage.name / DONE).exists() for stage in stages):
        return
    begun = recorded_config(folder / CONFIG).get("rl", {})
    for name in RATES:
        now = getattr(recipe.rl, name)
        if begun.get(name, now) != now:
            raise OtherSettings(
                f"rl.{name} was {begun[name]:g} and is now {now:g}, but no RL is left to do in {folder}: "
                "repeat the former number, or choose another --output"
            )


def reopen(folder: Path, stages: Longer, say: Say) -> None:
    """Let the finished RL stages go on, and what depends on them begin again."""
    for stage, later in stages:
        for one in later:
            say(f"{one.name}: begins again, since {stage.name} goes on")
            shutil.rmtree(folder / one.name, ignore_errors=True)
        # Last, so that a kill in between leaves a stage that is still to go on.
        (folder / stage.name / DONE).unlink(missing_ok=True)


def adopt_first_round(folder: Path, pipeline: Pipeline) -> None:
    """Rename the folders of a first round of rejection sampling, which had a number if others followed."""
    names = {stage.name for stage in pipeline.stages}
    for name in (REJECTION, TUNED, f"{HELDOUT}{TUNED}"):
        earlier = folder / f"{name}-1"
        if name in names and earlier.name not in names and earlier.exists() and not (folder / name).exists():
            earlier.rename(folder / name)


def refuse_other_draw(folder: Path, pipeline: Pipeline) -> None:
    """Raise OtherSettings if a begun stage, or the training on its samples, would go on with another seed.

    The first round of rejection sampling has another seed where others follow: the prompts would be others.
    """
    for stage in pipeline.stages:
        path = folder / stage.name / CONFIG
        if stage.name != REJECTION or not path.exists():
            continue
        learners = [one for one in pipeline.stages if stage.name in getattr(one, "samples", ())]
        left = [one.name for one in (stage, *learners) if not (folder / one.name / DONE).exists()]
        if left and recorded_config(path)["seed"] != stage.seed:
            raise OtherSettings(
                f"rejection.rounds: {left[0]} of {folder} was begun with another number of rounds: finish it "
                "with the former number first, or choose another --output"
            )


def drop_other_validations(folder: Path, pipeline: Pipeline, say: Say) -> None:
    """Delete validations and snapshots of steps that a begun RL stage repeats with other settings.

    What a stage began with is in its own folder, so that a kill before the stage goes on changes nothing.
    """
    for stage in pipeline.stages:
        path = folder / stage.name
        if not isinstance(stage, Reinforcement) or stage.validation is None or (path / DONE).exists():
            continue
        # verl validates repeated steps again.
        if stage.config.trainer != "trl" or not (path / CONFIG).exists():
            continue
        begun = recorded_config(path / CONFIG)["config"]
        # With a decay, the rate of a step depends on the number of steps.
        names = (*RATES, "steps") if stage.config.decay else RATES
        rows = list(read_lines(path / VALIDATION))
        if all(begun.get(name) == getattr(stage.config, name) for name in names) or not rows:
            continue
        saved = checkpoints.latest(path / CHECKPOINTS)
        step = checkpoints.step_of(saved) // stage.config.optimizer_steps if saved is not None else 0
        counts = {row["step"]: row["correct"] for row in rows if row["step"] <= step}
        if len(counts) == len(rows):
            continue
        # A later step may have displaced the snapshot of a step that would be among the best again.
        while lost := [
            one
            for one in best_steps(counts)[: stage.validation.keep]
            if not (path / SNAPSHOTS / f"step-{one}").exists()
        ]:
            del counts[lost[0]]
        left = b"".join(encode_line(row) for row in rows if row["step"] in counts)
        write_atomically(path / VALIDATION, left)
        for snapshot in (path / SNAPSHOTS).glob("step-*"):
            if checkpoints.step_of(snapshot) > step:
                shutil.rmtree(snapshot)
        say(f"{stage.name}: the steps after {step} are validated again, since their settings changed")


def say_moved(folder: Path, pipeline: Pipeline, moved: Sequence[str], say: Say) -> None:
    """Say which numbers moved, and record those of begun RL stages in their events.

    Says too where the result is another than that of a run with so many steps from the beginning.
    """
    for line in moved:
        say(line)
    single = any(line.startswith("rejection.rounds was 1 ") for line in moved)
    if single and (folder / REJECTION / DONE).exists():
        say(
            f"{REJECTION}: the first of several rounds draws other prompts than a single round, so that the "
            "result is not that of so many rounds from the start"
        )
    own = [line for line in moved if line.startswith("rl.")]
    for stage in pipeline.stages:
        path = folder / stage.name
        saved = checkpoints.latest(path / CHECKPOINTS) if isinstance(stage, Reinforcement) else None
        if not isinstance(stage, Reinforcement) or saved is None or (path / DONE).exists():
            continue
        step = checkpoints.step_of(saved) // stage.config.optimizer_steps
        with (path / EVENTS).open("ab") as events:
            for about in own:
                say(f"{stage.name}: from step {step + 1} on, {about}")
                events.write(encode_line({"step": step, "event": "changed", "about": about}))
        if any(line.startswith("rl.steps ") for line in own):
            for reason in _other_result(stage):
                say(f"{stage.name}: {reason}, so that the result is not that of so many steps from the start")


def _other_result(stage: Reinforcement) -> Iterator[str]:
    """Yield why an RL stage with added steps ends with other weights than one that began with them."""
    if stage.config.decay:
        yield "the learning rate fell towards the former last step (rl.decay)"
    if stage.config.off_policy:
        yield "no batch was sampled ahead of the former last step (rl.off_policy)"


def _steps_done(stage: Path) -> float:
    """Return the generation batches of a finished RL stage; infinity for one that is not finished."""
    if not (stage / DONE).exists() or not (stage / CONFIG).exists():
        return float("inf")
    steps: float = recorded_config(stage / CONFIG)["config"]["steps"]
    return steps


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
