"""The plan of a run, made without starting it: stages, sizes, hours, memory, disk and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tirjudge.console_text import span, table
from tirjudge_environments import Environment
from tirjudge_training.data.base import Data
from tirjudge_training.data.rows import ExpectedRows
from tirjudge_training.miniature.model import VOCABULARY
from tirjudge_training.pipelines.pipeline import Pipeline
from tirjudge_training.planning import memory
from tirjudge_training.planning.cost import cost_lines
from tirjudge_training.planning.memory import Shape
from tirjudge_training.planning.requirements import disk_lines, memory_lines
from tirjudge_training.recipe import Recipe
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.trainer import TaskSource
from tirjudge_training.stages.base import DONE, Size

HEAD = ("stage", "what", "sampled", "trained", "tokens", "time")


class NoRows:
    """The data of a recipe whose rows do not exist yet."""

    environments: Mapping[str, Environment] = {}

    def source(self, groups: int, seed: int) -> TaskSource:
        raise ValueError("there are no rows")

    def steps(self, groups: int, epochs: float) -> int:
        raise ValueError("there are no rows")

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        return []

    def validation(self, n: int) -> list[FormattedTask]:
        return []

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        return []


def plan(recipe: Recipe, pipeline: Pipeline, data: Data, folder: Path) -> Iterator[str]:
    """Yield the plan as lines of text. Loads no weights; without the model's config.json it has no times."""
    # Without a shape (no network, no config.json) the plan has sizes and tokens only.
    shape = shape_of(recipe)
    sizes = [stage.size(data) for stage in pipeline.stages]
    done = [(folder / stage.name / DONE).exists() for stage in pipeline.stages]
    yield f"{len(sizes)} stage{'s' * (len(sizes) != 1)}, from {_model(recipe, shape)}"
    if isinstance(data, NoRows):
        yield f"{recipe.data.train} does not exist: stages that go through its rows are not counted"
    if isinstance(data, ExpectedRows):
        expected = sum(recipe.rates.tasks.values())
        yield f"{recipe.data.train} does not exist: counted with {expected:,} rows ([rates.tasks])"
    yield ""
    rows = [
        (stage.name, size.what, *_counts(recipe, size), _time(recipe, size, shape, finished))
        for stage, size, finished in zip(pipeline.stages, sizes, done, strict=True)
    ]
    # Finished stages keep their line but no longer count towards the total.
    left = [size for size, finished in zip(sizes, done, strict=True) if not finished]
    yield from table([HEAD, *rows, ("total", "", "", "", "", _total(recipe, left, shape))], words=2)
    yield ""
    if shape is not None:
        yield from _assumed(recipe, shape.parameters)
        yield from memory_lines(recipe, shape)
        yield from disk_lines(recipe, pipeline, data, shape)
        yield from cost_lines(recipe, list(zip(pipeline.stages, sizes, strict=True)), shape.parameters)


def shape_of(recipe: Recipe) -> Shape | None:
    """Return the shape of the trained model; None if its configuration is not available."""
    base = recipe.model.base
    if base is None:
        return Shape(recipe.warmup.shape.parameters, VOCABULARY)
    try:
        lora = recipe.model.lora
        return memory.shape(base) if lora is None else memory.adapted(base, lora)
    except (OSError, ValueError):
        # A plan is useful without network access too: sizes and tokens need no model.
        return None


def _model(recipe: Recipe, shape: Shape | None) -> str:
    name = recipe.model.base or "the miniature"
    if shape is None:
        return f"{name}, whose config.json is not available: no times and no memory"
    return f"{name}, {shape.parameters / 1e6:,.1f} million parameters"


def _counts(recipe: Recipe, size: Size) -> tuple[str, str, str]:
    sampled = f"{size.sampled:,}" if size.sampled else ""
    if size.resampled:
        sampled += f" to {size.sampled + size.resampled:,}"
    least, most = (f"{count / 1e6:,.1f} M" for count in recipe.rates.tokens(size))
    tokens = least if least == most else f"{least} to {most}"
    return sampled, f"{size.trained:,}" if size.trained else "", tokens


def _time(recipe: Recipe, size: Size, shape: Shape | None, done: bool) -> str:
    if done:
        return "done"
    return "" if shape is None else span(*recipe.rates.seconds(size, shape.parameters))


def _total(recipe: Recipe, left: Sequence[Size], shape: Shape | None) -> str:
    if shape is None:
        return ""
    every = [recipe.rates.seconds(size, shape.parameters) for size in left]
    least, most = (sum(one[i] for one in every) for i in (0, 1))
    devices = recipe.rates.devices
    on = f" on {devices} devices: {span(least * devices, most * devices)} of one" if devices > 1 else ""
    return span(least, most) + on


def _assumed(recipe: Recipe, parameters: int) -> Iterator[str]:
    rates = recipe.rates
    yield (
        f"assumed ([rates] in the recipe): {rates.devices} device{'s' * (rates.devices > 1)}, each sampling "
        f"{rates.sampled(parameters):,.0f} and training {rates.trained(parameters):,.0f} tokens a second; a "
        f"trajectory has {rates.prompt_tokens:,} tokens of prompt and {rates.response_tokens:,} of response"
    )
    if rounds := recipe.rl.replacement_rounds:
        yield f"the larger numbers: every group is replaced rl.replacement_rounds = {rounds} times"
