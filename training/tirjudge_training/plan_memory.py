"""What a run would take of a device's memory, part by part, and of the disk."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge_training import footprint
from tirjudge_training.course import Course
from tirjudge_training.footprint import Shape, gib
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.fine_tuning import FineTuning
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.warm_up import WarmUp
from tirjudge_training.table import table

TRAININGS = (WarmUp, FineTuning, Reinforcement)


def memory_lines(recipe: Recipe, course: Course, shape: Shape) -> Iterator[str]:
    """By part, and whether it fits; with how many rows at a time it would."""
    rows, room, devices = recipe.rl.micro_batch, recipe.rates.memory, recipe.rates.devices
    parts = _parts(recipe, shape, rows)
    where = f"each of {devices} devices" if devices > 1 else "the device"
    yield ""
    yield f"memory of {where} in RL, with rl.micro_batch = {rows} rows of full length:"
    yield from table([(f"  {part}", gib(size)) for part, size in parts.items()])
    whole = sum(parts.values())
    yield f"  together {gib(whole)} of {gib(int(room))}: {_fit(recipe, shape, whole)}"
    trainings = sum(isinstance(stage, TRAININGS) for stage in course.stages)
    yield f"disk: about {gib(footprint.disk_bytes(shape, trainings))} of checkpoints and models"


def _fit(recipe: Recipe, shape: Shape, whole: int) -> str:
    if whole <= recipe.rates.memory:
        return "fits"
    for rows in range(recipe.rl.micro_batch - 1, 0, -1):
        smaller = sum(_parts(recipe, shape, rows).values())
        if smaller <= recipe.rates.memory:
            return f"does not fit; rl.micro_batch = {rows} does, with {gib(smaller)}"
    return "does not fit, whatever rl.micro_batch; take more devices or a smaller rl.max_tokens"


def _parts(recipe: Recipe, shape: Shape, rows: int) -> dict[str, int]:
    rates = recipe.rates
    return footprint.device_bytes(
        shape,
        devices=rates.devices,
        reference=recipe.rl.beta > 0,
        rows=rows,
        prompt=rates.prompt_tokens,
        response=recipe.rl.max_tokens,
        cached=rates.rows_at_once * (rates.prompt_tokens + rates.response_tokens),
    )
