"""The plan of a run, made without starting it: stages, sizes, hours, memory, disk and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tirjudge.console_text import span, table
from tirjudge_environments import Environment
from tirjudge_training.data.base import Data
from tirjudge_training.data.rows import ExpectedRows
from tirjudge_training.miniature.model import VOCABULARY
from tirjudge_training.pipelines import open_method
from tirjudge_training.pipelines.pipeline import Pipeline
from tirjudge_training.planning import memory
from tirjudge_training.planning.cost import UNKNOWN, cost_lines, is_tir, stage_seconds, sums
from tirjudge_training.planning.memory import Shape
from tirjudge_training.planning.requirements import disk_lines, memory_lines
from tirjudge_training.recipe import Recipe
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.stages.base import DONE, Size, Stage

HEAD = ("stage", "what", "sampled", "trained", "tokens", "time")


class NoRows:
    """The data of a recipe whose rows do not exist yet."""

    environments: Mapping[str, Environment] = {}

    def source(self, groups: int, seed: int, rows: int | None = None) -> TaskSource:
        raise ValueError("there are no rows")

    def steps(self, groups: int, epochs: float) -> tuple[int, int]:
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
    stages = list(zip(pipeline.stages, sizes, strict=True))
    rows = [
        (stage.name, size.what, *_counts(recipe, size), _time(recipe, stage, size, shape, finished))
        for (stage, size), finished in zip(stages, done, strict=True)
    ]
    # Finished stages keep their line but no longer count towards the total.
    left = [one for one, finished in zip(stages, done, strict=True) if not finished]
    yield from table([HEAD, *rows, ("total", "", "", "", "", _total(recipe, left, shape))], words=2)
    yield ""
    if shape is not None:
        reinforced = any(size.batches for size in sizes)
        yield from _assumed(recipe, shape.parameters, reinforced)
        yield from _unknown(recipe, stages)
        yield from batch_lines(recipe, stages, shape)
        if reinforced:
            yield from memory_lines(recipe, shape)
        yield from disk_lines(recipe, pipeline, data, shape)
        yield from cost_lines(recipe, stages, shape.parameters)


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
    tokens = (least if least == most else f"{least} to {most}") if most != "0.0 M" else ""
    trained = f"{size.trained:,}" if size.trained else ""
    if size.spared:
        trained = f"{size.trained - size.spared:,} to {trained}"
    return sampled, trained, tokens


def _time(recipe: Recipe, stage: Stage, size: Size, shape: Shape | None, done: bool) -> str:
    if done:
        return "done"
    if shape is None:
        return ""
    if not size.timed:
        return UNKNOWN
    alone = " of one device" if recipe.rates.devices > 1 and not stage.distributed else ""
    return span(*stage_seconds(recipe.rates, stage, size, shape.parameters)) + alone


def _total(recipe: Recipe, left: Sequence[tuple[Stage, Size]], shape: Shape | None) -> str:
    if shape is None:
        return ""
    timed = [(stage, size) for stage, size in left if size.timed]
    if not timed:
        return UNKNOWN if left else span(0, 0)
    least, most = sums(stage_seconds(recipe.rates, stage, size, shape.parameters) for stage, size in timed)
    devices = recipe.rates.devices
    on = f" on {devices} devices" if devices > 1 else ""
    # A stage of unknown length can only add to the others.
    return f"{'at least ' if len(timed) < len(left) else ''}{span(least, most)}{on}"


def _assumed(recipe: Recipe, parameters: int, reinforced: bool) -> Iterator[str]:
    rates = recipe.rates
    yield (
        f"assumed ([rates] in the recipe): {rates.devices} device{'s' * (rates.devices > 1)}, each sampling "
        f"{rates.sampled(parameters):,.0f} and training {rates.trained(parameters):,.0f} tokens a second; a "
        f"trajectory has {rates.prompt_tokens:,} tokens of prompt and {rates.response_tokens:,} of response"
    )
    rounds = recipe.rl.replacement_rounds if reinforced else 0
    if rounds and recipe.rl.rows is not None:
        yield (
            f"the smaller numbers of RL: every group is replaced rl.replacement_rounds = {rounds} times, by "
            "rows that are drawn only once per epoch"
        )
    elif rounds:
        yield f"the larger numbers: every group is replaced rl.replacement_rounds = {rounds} times"


def _unknown(recipe: Recipe, stages: Sequence[tuple[Stage, Size]]) -> Iterator[str]:
    """Yield what the times do not include."""
    without = [stage for stage, size in stages if not size.timed]
    if any(stage.asks_teacher for stage in without):
        yield "unknown: how long the teacher takes, which depends on its endpoint"
    others = [stage.name for stage in without if not stage.asks_teacher]
    if others:
        yield f"unknown: the time of {', '.join(others)}, for which there are no rows or no rates"
    if recipe.rates.devices > 1 and any(size.timed and not stage.distributed for stage, size in stages):
        yield "the first process alone runs the stages of one device, while the other devices wait"


def batch_lines(recipe: Recipe, stages: Sequence[tuple[Stage, Size]], shape: Shape) -> Iterator[str]:
    """Yield the arithmetic of one generation batch of RL, and of all of them."""
    trained = [(stage, size) for stage, size in stages if size.batches]
    if not trained:
        return
    stage, size = trained[0]
    rates, config, steps = recipe.rates, recipe.rl, size.batches
    devices = rates.devices
    seconds = rates.batch(size, shape.parameters)
    length = rates.prompt_tokens + rates.response_tokens
    background = ", in the background" if devices > 1 else ""
    rows = [
        (
            "generation",
            f"{size.sampled * rates.response_tokens / steps:,.0f} tokens",
            seconds.generation / devices,
        ),
        (
            "weight sync",
            f"{size.sync_bytes * shape.parameters * size.syncs / steps / 1e9:,.1f} GB",
            seconds.sync,
        ),
        ("forward only", f"{size.compared * length / steps:,.0f} tokens", seconds.forward / devices),
        ("forward, backward", f"{size.trained * length / steps:,.0f} tokens", seconds.training / devices),
        ("checkpoint", f"every {config.checkpoint_every} batches{background}", seconds.checkpoint),
    ]
    total = sum(one for _, _, one in rows) / steps
    yield ""
    yield f"one batch of {config.groups} x {config.samples} in {stage.name}, without replacements:"
    shown = [(f"  {name}", what, f"{one / steps:,.1f} s") for name, what, one in rows]
    yield from table([*shown, ("  total", "", f"{total:,.1f} s")], words=2)
    yield f"  rates: weights reach vLLM at {rates.sync / 1e9:g} GB/s, disks write {rates.disk / 1e9:g} GB/s"
    published = open_method(recipe).published
    if published is not None and is_tir(recipe):
        batches = sum(size.batches for _, size in trained)
        yield (
            f"  {batches:,} batches take {batches * total / 3600:,.1f} h; TIR Table 8 has {published.rl:.1f} "
            f"h of RL, {published.rl * 3600 / batches:,.1f} s a batch if it had as many"
        )
