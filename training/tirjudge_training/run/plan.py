"""The plan of a run, made without starting it: stages, trajectories, tokens, hours and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tirjudge.console_text import span, table
from tirjudge_environments import Environment
from tirjudge_training.data.base import Data
from tirjudge_training.data.own_rows import ExpectedRows, RowData
from tirjudge_training.methods import Pipeline
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.stream import TaskSource
from tirjudge_training.run import model_size
from tirjudge_training.run.cpu_memory import largest_passes, trains_on_cpu
from tirjudge_training.run.model_size import Shape, gib
from tirjudge_training.run.preflight import engine_share
from tirjudge_training.stages.base import DONE, Size, Stage

HEAD = ("stage", "what", "sampled", "trained", "tokens", "time")
UNKNOWN = "unknown"
ASSUMED = "assumed ([rates] in the recipe)"
"""The words for lengths and speeds that the recipe states."""


class NoRows:
    """The data of a recipe whose rows do not exist yet."""

    environments: Mapping[str, Environment] = {}

    def source(self, seed: int, rows: int | None = None, chosen: frozenset[str] | None = None) -> TaskSource:
        raise ValueError("there are no rows")

    def steps(self, groups: int, epochs: float) -> tuple[int, int]:
        raise ValueError("there are no rows")

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        return []

    def validation(self, n: int) -> list[FormattedTask]:
        return []

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        return []


def plan(
    recipe: Recipe, pipeline: Pipeline, data: Data, folder: Path, origin: str = ASSUMED
) -> Iterator[str]:
    """Yield the plan as lines of text. Loads no weights; without the model's config.json it has no memory.

    `origin` are words for where the lengths and speeds come from.
    """
    shape = _shape(recipe)
    sizes = {stage.name: stage.size(data) for stage in pipeline.stages}
    yield f"{len(sizes)} stage{'s' * (len(sizes) != 1)}, from {_model(recipe, shape)}"
    if isinstance(data, NoRows):
        yield f"{recipe.data.train} does not exist: stages that go through its rows are not counted"
    if isinstance(data, ExpectedRows):
        expected = sum(recipe.rates.tasks.values())
        yield f"{recipe.data.train} does not exist: counted with {expected:,} rows ([rates.tasks])"
    elif isinstance(data, RowData):
        yield data.split
    yield ""
    left = []
    rows = []
    for stage in pipeline.stages:
        size = sizes[stage.name]
        if (folder / stage.name / DONE).exists():
            time = "done"
        else:
            seconds = _seconds(recipe, stage, size)
            left.append(seconds)
            time = UNKNOWN if seconds is None else span(*seconds)
        rows.append((stage.name, size.what, *_counts(recipe, size), time))
    yield from table([HEAD, *rows, ("total", "", "", "", "", _total(left))], words=2)
    yield ""
    yield from _rates(recipe, origin, replaces=any(size.resampled for size in sizes.values()))
    if shape is not None:
        yield from _memory(recipe, pipeline, shape)


def _shape(recipe: Recipe) -> Shape | None:
    """Return the shape of the trained model; None if its configuration is not available."""
    try:
        return model_size.shape(recipe.model.base, recipe.model.lora, recipe.model.dtype, planned=True)
    except BadRecipe:  # layers that the model does not have
        raise
    except (OSError, ValueError):
        # A plan is useful without network access too: sizes and tokens need no model.
        return None


def _model(recipe: Recipe, shape: Shape | None) -> str:
    name = recipe.model.base
    if shape is None:
        return f"{name}, whose config.json is not available: its memory is unknown"
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


def _seconds(recipe: Recipe, stage: Stage, size: Size) -> tuple[float, float] | None:
    """Return the least and the most seconds of a stage; None if the rates do not say them."""
    if not (size.sampled or size.trained):
        return None
    # One process alone does the work of some stages, while the others wait.
    return recipe.rates.seconds(size, devices=recipe.rates.devices if stage.distributed else 1)


def _total(left: list[tuple[float, float] | None]) -> str:
    timed = [seconds for seconds in left if seconds is not None]
    if left and not timed:
        return UNKNOWN
    # A stage of unknown length can only add to the others.
    least, most = (sum(seconds[end] for seconds in timed) for end in (0, 1))
    return f"{'at least ' if len(timed) < len(left) else ''}{span(least, most)}"


def _rates(recipe: Recipe, origin: str, *, replaces: bool) -> Iterator[str]:
    rates, rounds = recipe.rates, recipe.rl.replacement_rounds
    line = (
        f"{origin}: a trajectory has {rates.prompt_tokens:,} tokens of prompt and "
        f"{rates.response_tokens:,} of response"
    )
    if rates.sampled_per_second and rates.trained_per_second:
        yield (
            f"{line}; {f'each of {rates.devices} devices' if rates.devices > 1 else 'one device'} samples "
            f"{rates.sampled_per_second:,.0f} and trains {rates.trained_per_second:,.0f} tokens a second"
        )
    else:
        yield f"{line}; for hours, set rates.sampled_per_second and rates.trained_per_second"
    if replaces:
        yield f"the other end of a range: every group is replaced rl.replacement_rounds = {rounds} times"


def _memory(recipe: Recipe, pipeline: Pipeline, shape: Shape) -> Iterator[str]:
    devices = recipe.rates.devices
    needed = model_size.training_bytes(
        shape,
        shards=devices,
        rounded=True,
        reference=any(stage.reference for stage in pipeline.stages),
        sampler=recipe.rl.generator,
        off_policy=recipe.rl.off_policy,
    )
    where = f"each of {devices} devices" if devices > 1 else "the device"
    line = f"memory of {where}: at least {gib(needed)}; activations come on top"
    if recipe.rl.generator != "vllm":
        found = largest_passes(recipe, pipeline.stages, shape, needed) if trains_on_cpu(devices) else None
        yield f"memory on this CPU: at most {gib(found.total)}: {found.parts(needed)}" if found else line
        return
    beside = model_size.beside_engine_bytes(
        needed, shape, shards=devices, offloaded=recipe.rl.offload_moments
    )
    share = f"vLLM's engine, which takes {engine_share(recipe):.0%} of the device"
    if recipe.rl.vllm.get("enable_sleep_mode"):
        yield f"{line}. At least {gib(beside)} while batches are sampled, beside {share}"
    else:
        yield f"{line}, and all the time {share}"
