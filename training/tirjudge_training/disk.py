"""The disk space that a run will need, estimated by part."""

from __future__ import annotations

from tirjudge_training.course import Course
from tirjudge_training.data import Data
from tirjudge_training.footprint import Shape, deepspeed_weight
from tirjudge_training.recipe import Recipe
from tirjudge_training.sharing import Sharing
from tirjudge_training.stages.base import Stage

WEIGHT, MOMENTS = 4, 8
"""Bytes per parameter in float32, and per trained parameter for Adam's two moments."""
RECORD, TEXT, SAMPLED = 800, 4, 7
"""Bytes per rollout for its record without the text, per token for its text, and per sampled token in Parquet
(its id, its logprob and its text once more, compressed)."""


def disk_bytes(
    recipe: Recipe, course: Course, data: Data, shape: Shape, *, sharing: Sharing, refilled: bool = False
) -> dict[str, int]:
    """Return an estimate in bytes, by part. `refilled` includes all possible replacements of groups."""
    disks = [stage.disk() for stage in course.stages]
    kept = sum(disk.checkpoints for disk in disks)
    at_once = kept + 1 if kept else 0  # the next checkpoint is written before the oldest is deleted
    rollouts = sum(_rollouts(stage, data, refilled) for stage in course.stages)
    parts = {
        "checkpoints": at_once * _checkpoint_bytes(sharing) * shape.trained,
        "models": sum(disk.models for disk in disks) * _model_bytes(sharing) * shape.parameters,
        "rollouts": rollouts * _rollout_bytes(recipe),
    }
    return {part: size for part, size in parts.items() if size}


def _model_bytes(sharing: Sharing) -> int:
    """Return the bytes per parameter of a model folder."""
    return deepspeed_weight() if sharing is Sharing.DEEPSPEED else WEIGHT


def _checkpoint_bytes(sharing: Sharing) -> int:
    """Return the bytes per trained parameter of a checkpoint. FSDP and DeepSpeed write the weights twice."""
    state = MOMENTS + (WEIGHT if sharing is Sharing.DEEPSPEED else 0)  # DeepSpeed trains a float32 copy
    return state + (1 if sharing is Sharing.NONE else 2) * _model_bytes(sharing)


def _rollouts(stage: Stage, data: Data, refilled: bool) -> int:
    if not stage.disk().rollouts:
        return 0
    size = stage.size(data)
    return size.sampled + (size.resampled if refilled else 0)


def _rollout_bytes(recipe: Recipe) -> int:
    """Return the bytes of a rollout: a line of `episodes.jsonl` with programs twice, a row of `rollouts/`."""
    response = min(recipe.rates.response_tokens, recipe.rl.max_tokens)
    return RECORD + TEXT * (recipe.rates.prompt_tokens + 2 * response) + SAMPLED * response
