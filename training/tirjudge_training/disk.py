"""What a run writes to its disk, by part, told before it begins."""

from __future__ import annotations

from tirjudge_training.course import Course
from tirjudge_training.data import Data
from tirjudge_training.footprint import Shape, deepspeed_weight
from tirjudge_training.recipe import Recipe
from tirjudge_training.sharing import Sharing
from tirjudge_training.stages.base import Stage
from tirjudge_training.stages.fine_tuning import FineTuning
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.selection import Selection, candidates
from tirjudge_training.stages.warm_up import WarmUp

WEIGHT, MOMENTS = 4, 8
"""Bytes of a parameter in float32, and of Adam's moments of one that is trained."""
SUPERVISED = 2
"""Checkpoints that a supervised stage keeps."""
RECORD, TEXT, SAMPLED = 800, 4, 7
"""Bytes of a rollout's record beside its text, of a token's text, and of what is kept of a sampled token in
Parquet: its id, its logprob and its text once more, compressed."""


def disk_bytes(
    recipe: Recipe, course: Course, data: Data, shape: Shape, *, sharing: Sharing, refilled: bool = False
) -> dict[str, int]:
    """By part; an estimate. `refilled` counts all replacements of groups that there may be."""
    kept = sum(map(_checkpoints, course.stages))
    at_once = kept + 1 if kept else 0  # the next one is written before the oldest goes
    rollouts = sum(_rollouts(stage, data, refilled) for stage in course.stages)
    parts = {
        "checkpoints": at_once * _checkpoint_bytes(sharing) * shape.trained,
        "models": sum(map(_models, course.stages)) * _model_bytes(sharing) * shape.parameters,
        "rollouts": rollouts * _rollout_bytes(recipe),
    }
    return {part: size for part, size in parts.items() if size}


def _model_bytes(sharing: Sharing) -> int:
    """Of a parameter."""
    return deepspeed_weight() if sharing is Sharing.DEEPSPEED else WEIGHT


def _checkpoint_bytes(sharing: Sharing) -> int:
    """Of a trained parameter. Each of FSDP and DeepSpeed writes the weights once more, for itself."""
    state = MOMENTS + (WEIGHT if sharing is Sharing.DEEPSPEED else 0)  # whose moments are of a copy
    return state + (1 if sharing is Sharing.NONE else 2) * _model_bytes(sharing)


def _checkpoints(stage: Stage) -> int:
    if isinstance(stage, Reinforcement):
        return candidates(stage.config, stage.config.steps)
    return SUPERVISED if isinstance(stage, FineTuning | WarmUp) else 0


def _models(stage: Stage) -> int:
    """The one that the stage leaves, and the random weights that the miniature begins with."""
    return isinstance(stage, Reinforcement | FineTuning | WarmUp | Selection) + isinstance(stage, WarmUp)


def _rollouts(stage: Stage, data: Data, refilled: bool) -> int:
    if not isinstance(stage, Reinforcement):
        return 0
    size = stage.size(data)
    return size.sampled + (size.resampled if refilled else 0)


def _rollout_bytes(recipe: Recipe) -> int:
    """Of a rollout as a line of `episodes.jsonl`, where programs stand twice, and as a row of `rollouts/`."""
    response = min(recipe.rates.response_tokens, recipe.rl.max_tokens)
    return RECORD + TEXT * (recipe.rates.prompt_tokens + 2 * response) + SAMPLED * response
