"""The memory and the disk space that a run would need, part by part."""

from __future__ import annotations

from collections.abc import Iterator

from tirjudge_training import footprint
from tirjudge_training.course import Course
from tirjudge_training.data import Data
from tirjudge_training.disk import disk_bytes
from tirjudge_training.footprint import Shape, gib
from tirjudge_training.recipe import Recipe
from tirjudge_training.sharing import Sharing
from tirjudge_training.table import table


def memory_lines(recipe: Recipe, shape: Shape) -> Iterator[str]:
    """Yield the memory by part, and whether it fits, or the `rl.micro_batch` with which it would."""
    rows, room, devices = recipe.rl.micro_batch, recipe.rates.memory, recipe.rates.devices
    parts = _parts(recipe, shape, rows)
    where = f"each of {devices} devices" if devices > 1 else "the device"
    yield ""
    yield f"memory of {where} in RL, with rl.micro_batch = {rows} rows of full length:"
    yield from table([(f"  {part}", gib(size)) for part, size in parts.items()])
    whole = sum(parts.values())
    yield f"  total {gib(whole)} of {gib(int(room))}: {_fit(recipe, shape, whole)}"


def disk_lines(recipe: Recipe, course: Course, data: Data, shape: Shape) -> Iterator[str]:
    """Yield the disk space by part, without and with all possible replacements of groups."""
    sharing = Sharing.FSDP if recipe.rates.devices > 1 else Sharing.NONE
    least, most = (
        disk_bytes(recipe, course, data, shape, sharing=sharing, refilled=refilled)
        for refilled in (False, True)
    )
    if not most:
        return
    yield ""
    yield "disk, about:"
    rows = [(f"  {part}", _range(least.get(part, 0), size)) for part, size in most.items()]
    yield from table([*rows, ("  total", _range(sum(least.values()), sum(most.values())))])


def _range(least: int, most: int) -> str:
    shown = gib(least), gib(most)
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _fit(recipe: Recipe, shape: Shape, whole: int) -> str:
    if whole <= recipe.rates.memory:
        return "fits"
    for rows in range(recipe.rl.micro_batch - 1, 0, -1):
        smaller = sum(_parts(recipe, shape, rows).values())
        if smaller <= recipe.rates.memory:
            return f"does not fit; rl.micro_batch = {rows} does, with {gib(smaller)}"
    return "does not fit with any rl.micro_batch; use more devices or a smaller rl.max_tokens"


def _parts(recipe: Recipe, shape: Shape, rows: int) -> dict[str, int]:
    rates = recipe.rates
    return footprint.device_bytes(
        shape,
        devices=rates.devices,
        reference=recipe.rl.beta > 0,
        rows=rows,
        prompt=rates.prompt_tokens,
        response=recipe.rl.max_tokens,
        sampler=recipe.rl.generator,
        cached=rates.rows_at_once * (rates.prompt_tokens + rates.response_tokens),
    )
