"""The memory and the disk space that a run would need, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tirjudge.console_text import table
from tirjudge_training.data.base import Data
from tirjudge_training.pipelines.pipeline import Pipeline
from tirjudge_training.planning.memory import (
    HALF,
    VLLM_SHARE,
    Shape,
    Work,
    device_bytes,
    gib,
    largest,
)
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.base import Stage

WEIGHT, MOMENTS = 4, 8
"""Bytes per parameter in float32, and per trained parameter for Adam's two moments."""
STEP = 1024
"""The difference between the token budgets that a plan tries."""
RECORD, TEXT, SAMPLED = 800, 4, 7
"""Bytes per rollout for its record without the text, per token for its text, and per sampled token in Parquet
(its id, its logprob and its text once more, compressed)."""


def memory_lines(recipe: Recipe, shape: Shape) -> Iterator[str]:
    """Yield the memory by part, and if it does not fit, the largest passes that do."""
    work, room = _work(recipe), int(recipe.rates.memory)
    where = f"each of {work.devices} devices" if work.devices > 1 else "the device"
    row = f"{work.prompt:,} + {work.response:,} tokens"
    yield ""
    if work.budget is None:
        yield f"memory of {where} in RL, with rl.micro_batch = {work.rows} rows of {row}:"
    else:
        alone = f", but at least one row of {row}" if work.budget < work.longest else ""
        yield f"memory of {where} in RL, with rl.token_budget = {work.budget:,} tokens of packed rows{alone}:"
    phases = device_bytes(shape, work)
    for phase, parts in phases.items():
        if parts:
            yield f"  {phase}"
            yield from table([(f"    {part}", gib(size)) for part, size in parts.items()])
    phase, total = largest(phases)
    yield f"  most at once {gib(total)}, while {phase}, of {gib(room)}: {_fit(recipe, shape, total)}"
    yield "  not counted, and not measured: CUDA's context, NCCL's buffers, fragmentation (several GiB)"
    if recipe.rl.generator == "vllm":
        yield f"  {_engine(recipe, shape, work.reserved)}"


def disk_lines(recipe: Recipe, pipeline: Pipeline, data: Data, shape: Shape) -> Iterator[str]:
    """Yield the disk space by part, without and with all possible replacements of groups."""
    least, most = (disk_bytes(recipe, pipeline, data, shape, replaced=replaced) for replaced in (False, True))
    if not most:
        return
    yield ""
    yield "disk, about:"
    rows = [(f"  {part}", _range(least.get(part, 0), size)) for part, size in most.items()]
    yield from table([*rows, ("  total", _range(sum(least.values()), sum(most.values())))])


def disk_bytes(
    recipe: Recipe, pipeline: Pipeline, data: Data, shape: Shape, *, replaced: bool = False
) -> dict[str, int]:
    """Return an estimate in bytes, by part. `replaced` includes all possible replacements of groups."""
    disks = [stage.disk() for stage in pipeline.stages]
    kept = sum(disk.checkpoints for disk in disks)
    at_once = kept + 1 if kept else 0  # the next checkpoint is written before the oldest is deleted
    rollouts = sum(_rollouts(stage, data, replaced) for stage in pipeline.stages)
    parts = {
        "checkpoints": at_once * (WEIGHT + MOMENTS) * shape.trained,
        "models": sum(disk.models for disk in disks) * WEIGHT * shape.parameters,
        "snapshots, bfloat16": sum(disk.snapshots for disk in disks) * HALF * shape.parameters,
        "rollouts": rollouts * _rollout_bytes(recipe),
    }
    return {part: size for part, size in parts.items() if size}


def _range(least: int, most: int) -> str:
    shown = gib(least), gib(most)
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _fit(recipe: Recipe, shape: Shape, total: int) -> str:
    if total <= recipe.rates.memory:
        return "fits"
    work = _work(recipe)
    key, smaller = "rl.micro_batch", [replace(work, rows=rows) for rows in range(work.rows - 1, 0, -1)]
    if work.budget is not None:
        # Below the longest row a budget saves nothing, since that row gets a pass of its own.
        budgets = range((work.budget - 1) // STEP * STEP, work.longest - 1, -STEP)
        key, smaller = "rl.token_budget", [replace(work, budget=budget) for budget in budgets]
    # The largest passes that fit, since smaller ones are slower.
    for one in smaller:
        _, needed = largest(device_bytes(shape, one))
        if needed <= recipe.rates.memory:
            size = one.rows if one.budget is None else one.budget
            return f"does not fit; {key} = {size} does, with {gib(needed)}"
    smaller_engine = ", a smaller rl.vllm.gpu_memory_utilization" if recipe.rl.generator == "vllm" else ""
    return f"does not fit with any {key}; use more devices{smaller_engine} or shorter rows"


def _engine(recipe: Recipe, shape: Shape, reserved: int) -> str:
    """Return one line about the KV cache that vLLM's reservation leaves beside its weights."""
    engine, rates = recipe.rl.vllm, recipe.rates
    shards = int(engine.get("tensor_parallel_size", 1))
    weights, row = HALF * shape.parameters // shards, rates.prompt_tokens + rates.response_tokens
    room = reserved - weights
    if room <= 0:
        return f"vLLM cannot start: its weights take {gib(weights)} of the {gib(reserved)} that it may use"
    if not shape.cached:
        return f"vLLM's weights take {gib(weights)} of it; the size of its KV cache is unknown"
    tokens = room * shards // (HALF * shape.cached)
    return (
        f"vLLM: {gib(weights)} of weights and at most {gib(room)} of KV cache for {tokens:,} tokens, "
        f"{tokens // row:,} rows of {row:,}; its own activations come out of the cache"
    )


def _work(recipe: Recipe) -> Work:
    rates, rl = recipe.rates, recipe.rl
    share = float(rl.vllm.get("gpu_memory_utilization", VLLM_SHARE))
    return Work(
        devices=rates.devices,
        rows=rl.micro_batch,
        # The longest prompt that training admits; a recipe without a limit is planned with the mean.
        prompt=recipe.data.max_prompt_tokens or rates.prompt_tokens,
        response=rl.max_tokens,
        cached=rates.rows_at_once * (rates.prompt_tokens + rates.response_tokens),
        reference=rl.beta > 0,
        sampler=rl.generator,
        off_policy=rl.off_policy,
        reserved=int(share * rates.memory) if rl.generator == "vllm" else 0,
        budget=rl.token_budget,
        masked=not recipe.model.attn_implementation.startswith("flash"),
        sleeps=rl.generator == "vllm" and bool(rl.vllm.get("enable_sleep_mode")),
    )


def _rollouts(stage: Stage, data: Data, replaced: bool) -> int:
    if not stage.disk().rollouts:
        return 0
    size = stage.size(data)
    return size.sampled + (size.resampled if replaced else 0)


def _rollout_bytes(recipe: Recipe) -> int:
    """Return the bytes of a rollout: a line of `episodes.jsonl` with programs twice, a row of `rollouts/`."""
    response = min(recipe.rates.response_tokens, recipe.rl.max_tokens)
    return RECORD + TEXT * (recipe.rates.prompt_tokens + 2 * response) + SAMPLED * response
