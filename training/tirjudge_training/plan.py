"""What a run would take, told without starting it: stages, sizes, hours, memory and disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tirjudge_environments import Environment
from tirjudge_training import footprint, miniature
from tirjudge_training.course import Course
from tirjudge_training.data import Data
from tirjudge_training.footprint import gib
from tirjudge_training.grouping import Draw
from tirjudge_training.recipe import Recipe
from tirjudge_training.rl import Source
from tirjudge_training.stages.base import DONE, Size
from tirjudge_training.stages.fine_tuning import FineTuning
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.warm_up import WarmUp

TRAININGS = (WarmUp, FineTuning, Reinforcement)
HEAD = ("stage", "what", "sampled", "trained", "time")


class NoRows:
    """In the place of rows that are not here yet."""

    environments: Mapping[str, Environment] = {}

    def source(self, groups: int, seed: int) -> Source:
        raise ValueError("there are no rows")

    def steps(self, groups: int, epochs: float) -> int:
        raise ValueError("there are no rows")

    def prompts(self, n: int | None, seed: int) -> list[Draw]:
        return []

    def validation(self, n: int) -> list[Draw]:
        return []

    def heldout(self, n: int, seed: int) -> list[Draw]:
        return []


def plan(recipe: Recipe, course: Course, data: Data, folder: Path) -> Iterator[str]:
    """Lines for people. No weight is loaded: of a model its configuration is enough, and may be missing."""
    shape = _shape(recipe)
    sizes = [stage.size(data) for stage in course.stages]
    done = [(folder / stage.name / DONE).exists() for stage in course.stages]
    yield f"{len(sizes)} stage{'s' * (len(sizes) != 1)}, from {_model(recipe, shape)}"
    if isinstance(data, NoRows):
        yield f"{recipe.data.train} is not here: what goes through its rows is not counted"
    yield ""
    times = [_time(recipe, size, shape, finished) for size, finished in zip(sizes, done, strict=True)]
    rows = [
        (stage.name, size.what, *_counts(size), time)
        for stage, size, time in zip(course.stages, sizes, times, strict=True)
    ]
    left = [size for size, finished in zip(sizes, done, strict=True) if not finished]
    yield from _table([HEAD, *rows, ("together", "", "", "", _together(recipe, left, shape))])
    yield ""
    if shape is not None:
        yield from _assumed(recipe, shape[0])
        yield from _memory(recipe, course, *shape)


def _shape(recipe: Recipe) -> tuple[int, int] | None:
    """(parameters, entries of the vocabulary) of the model that is trained; None if it is not to be had."""
    base = recipe.model.base
    if base is None:
        return miniature.PARAMETERS, miniature.VOCABULARY
    try:
        return footprint.parameters(base), footprint.vocabulary(base)
    except (OSError, ValueError):
        return None


def _model(recipe: Recipe, shape: tuple[int, int] | None) -> str:
    name = recipe.model.base or "the miniature"
    if shape is None:
        return f"{name}, whose config.json is not to be had here: no times and no memory"
    return f"{name}, {shape[0] / 1e6:,.1f} million parameters"


def _counts(size: Size) -> tuple[str, str]:
    sampled = f"{size.sampled:,}" if size.sampled else ""
    if size.resampled:
        sampled += f" to {size.sampled + size.resampled:,}"
    return sampled, f"{size.trained:,}" if size.trained else ""


def _time(recipe: Recipe, size: Size, shape: tuple[int, int] | None, done: bool) -> str:
    if done:
        return "done"
    return "" if shape is None else _range(*recipe.rates.seconds(size, shape[0]))


def _together(recipe: Recipe, left: Sequence[Size], shape: tuple[int, int] | None) -> str:
    if shape is None:
        return ""
    every = [recipe.rates.seconds(size, shape[0]) for size in left]
    least, most = (sum(one[i] for one in every) for i in (0, 1))
    devices = recipe.rates.devices
    on = f" on {devices} devices: {_range(least * devices, most * devices)} of one" if devices > 1 else ""
    return _range(least, most) + on


def _assumed(recipe: Recipe, parameters: int) -> Iterator[str]:
    rates = recipe.rates
    yield (
        f"assumed ([rates] in the recipe): {rates.devices} device{'s' * (rates.devices > 1)}, each sampling "
        f"{rates.sampled(parameters):,.0f} and training {rates.trained(parameters):,.0f} tokens a second; a "
        f"trajectory has {rates.prompt_tokens:,} tokens of prompt and {rates.response_tokens:,} of response"
    )
    if recipe.rl.refills:
        yield f"the larger numbers: every group is replaced rl.refills = {recipe.rl.refills} times"


def _memory(recipe: Recipe, course: Course, parameters: int, vocabulary: int) -> Iterator[str]:
    reference, devices = recipe.rl.beta > 0, recipe.rates.devices
    state = footprint.training_bytes(parameters, reference=reference)
    logits = footprint.logits_bytes(recipe.rl.micro_batch, recipe.rl.max_tokens, vocabulary)
    held = "weights, gradients, Adam's moments" + " and the KL reference" * reference
    shared = f" ({gib(state // devices)} a device where FSDP shares it out)" if devices > 1 else ""
    yield (
        f"memory: {gib(state)} for {held} in float32{shared}; up to {gib(logits)} for the logits of "
        f"{recipe.rl.micro_batch} rows of {recipe.rl.max_tokens:,} tokens; activations come on top"
    )
    trainings = sum(isinstance(stage, TRAININGS) for stage in course.stages)
    yield f"disk: about {gib(footprint.disk_bytes(parameters, trainings))} of checkpoints and models"


def _range(least: float, most: float) -> str:
    shown = _duration(least), _duration(most)
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return "under 1 min"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:,.1f} h"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned: words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        aligned = zip(row, widths, range(len(row)), strict=True)
        yield "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for c, w, i in aligned).rstrip()
