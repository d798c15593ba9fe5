"""The memory and the disk space that a run would need, part by part."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge.console_text import table
from tirjudge_training.data.base import Data
from tirjudge_training.distributed.processes import Sharding
from tirjudge_training.pipelines.pipeline import Pipeline
from tirjudge_training.planning import memory
from tirjudge_training.planning.memory import Shape, deepspeed_weight, gib
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.base import Stage

WEIGHT, MOMENTS = 4, 8
"""Bytes per parameter in float32, and per trained parameter for Adam's two moments."""
RECORD, TEXT, SAMPLED = 800, 4, 7
"""Bytes per rollout for its record without the text, per token for its text, and per sampled token in Parquet
(its id, its logprob and its text once more, compressed)."""


def memory_lines(recipe: Recipe, shape: Shape) -> Iterator[str]:
    """Yield the memory by part, and if it does not fit, the largest `rl.micro_batch` that does."""
    rows, room, devices = recipe.rl.micro_batch, recipe.rates.memory, recipe.rates.devices
    parts = _parts(recipe, shape, rows)
    where = f"each of {devices} devices" if devices > 1 else "the device"
    yield ""
    yield f"memory of {where} in RL, with rl.micro_batch = {rows} rows of full length:"
    yield from table([(f"  {part}", gib(size)) for part, size in parts.items()])
    total = sum(parts.values())
    yield f"  total {gib(total)} of {gib(int(room))}: {_fit(recipe, shape, total)}"


def disk_lines(recipe: Recipe, pipeline: Pipeline, data: Data, shape: Shape) -> Iterator[str]:
    """Yield the disk space by part, without and with all possible replacements of groups."""
    # A plan is made before a launcher says how the state is sharded; FSDP is what the recipes document.
    sharing = Sharding.FSDP if recipe.rates.devices > 1 else Sharding.NONE
    least, most = (
        disk_bytes(recipe, pipeline, data, shape, sharing=sharing, replaced=replaced)
        for replaced in (False, True)
    )
    if not most:
        return
    yield ""
    yield "disk, about:"
    rows = [(f"  {part}", _range(least.get(part, 0), size)) for part, size in most.items()]
    yield from table([*rows, ("  total", _range(sum(least.values()), sum(most.values())))])


def disk_bytes(
    recipe: Recipe, pipeline: Pipeline, data: Data, shape: Shape, *, sharing: Sharding, replaced: bool = False
) -> dict[str, int]:
    """Return an estimate in bytes, by part. `replaced` includes all possible replacements of groups."""
    disks = [stage.disk() for stage in pipeline.stages]
    kept = sum(disk.checkpoints for disk in disks)
    at_once = kept + 1 if kept else 0  # the next checkpoint is written before the oldest is deleted
    rollouts = sum(_rollouts(stage, data, replaced) for stage in pipeline.stages)
    parts = {
        "checkpoints": at_once * _checkpoint_bytes(sharing) * shape.trained,
        "models": sum(disk.models for disk in disks) * _model_bytes(sharing) * shape.parameters,
        "rollouts": rollouts * _rollout_bytes(recipe),
    }
    return {part: size for part, size in parts.items() if size}


def _range(least: int, most: int) -> str:
    shown = gib(least), gib(most)
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _fit(recipe: Recipe, shape: Shape, total: int) -> str:
    if total <= recipe.rates.memory:
        return "fits"
    # The largest micro-batch that fits, since smaller ones are slower.
    for rows in range(recipe.rl.micro_batch - 1, 0, -1):
        smaller = sum(_parts(recipe, shape, rows).values())
        if smaller <= recipe.rates.memory:
            return f"does not fit; rl.micro_batch = {rows} does, with {gib(smaller)}"
    return "does not fit with any rl.micro_batch; use more devices or a smaller rl.max_tokens"


def _parts(recipe: Recipe, shape: Shape, rows: int) -> dict[str, int]:
    rates = recipe.rates
    return memory.device_bytes(
        shape,
        devices=rates.devices,
        reference=recipe.rl.beta > 0,
        rows=rows,
        prompt=rates.prompt_tokens,
        response=recipe.rl.max_tokens,
        sampler=recipe.rl.generator,
        cached=rates.rows_at_once * (rates.prompt_tokens + rates.response_tokens),
    )


def _model_bytes(sharing: Sharding) -> int:
    """Return the bytes per parameter of a model folder."""
    return deepspeed_weight() if sharing is Sharding.DEEPSPEED else WEIGHT


def _checkpoint_bytes(sharing: Sharding) -> int:
    """Return the bytes per trained parameter of a checkpoint. FSDP and DeepSpeed write the weights twice."""
    state = MOMENTS + (WEIGHT if sharing is Sharding.DEEPSPEED else 0)  # DeepSpeed trains a float32 copy
    return state + (1 if sharing is Sharding.NONE else 2) * _model_bytes(sharing)


def _rollouts(stage: Stage, data: Data, replaced: bool) -> int:
    if not stage.disk().rollouts:
        return 0
    size = stage.size(data)
    return size.sampled + (size.resampled if replaced else 0)


def _rollout_bytes(recipe: Recipe) -> int:
    """Return the bytes of a rollout: a line of `episodes.jsonl` with programs twice, a row of `rollouts/`."""
    response = min(recipe.rates.response_tokens, recipe.rl.max_tokens)
    return RECORD + TEXT * (recipe.rates.prompt_tokens + 2 * response) + SAMPLED * response
