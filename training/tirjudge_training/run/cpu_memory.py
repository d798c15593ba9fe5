"""The most memory that training takes on a CPU, with the reason for each part, from configurations alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial

from tirjudge_training.cpu_forward import PART
from tirjudge_training.distributed.device import current_device
from tirjudge_training.recipe import Recipe
from tirjudge_training.run import model_size
from tirjudge_training.run.model_size import FROZEN, Shape, gib
from tirjudge_training.stages.base import Stage
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.sft import FineTuning

LIBRARIES = 5 * 2**28
"""Bytes of Python with torch, transformers, PEFT and TRL, and of the sandbox's workers: 1.25 GiB."""
FREED = 1.25
"""Activations with the freed blocks that the allocator keeps, since batches differ in length."""
LOGITS = 4
"""Matrices of tokens x vocabulary at once: logits, exponentials, their product, and the gradient."""
CHECKPOINT = 12
"""Bytes per trained parameter of a checkpoint that is written while training goes on."""


@dataclass(frozen=True, slots=True)
class Passes:
    """The largest forward pass of a stage, with the key that makes it smaller, and its bytes: `fixed`, and
    `each` for each of its `rows`, which have at most `tokens` tokens."""

    stage: str
    key: str
    rows: int
    tokens: int
    fixed: int
    each: int

    @property
    def total(self) -> int:
        return self.fixed + self.rows * self.each

    def parts(self, state: int) -> str:
        """Name the parts of the total; `state` are the bytes of weights, gradients and moments."""
        return (
            f"{gib(state)} of weights, gradients and moments, {gib(self.fixed - state)} of libraries and a "
            f"checkpoint, {gib(self.rows * self.each)} of activations in {self.stage}: {self.rows} "
            f"row{'s' * (self.rows > 1)} of up to {self.tokens:,} tokens, {self.key} = {self.rows}"
        )

    def smaller(self, room: int) -> str:
        """Return the option that lets the stage fit into `room` bytes, or advice if no option does."""
        # A divisor of the rows divides every batch that they divide.
        fitting = [
            n for n in range(1, self.rows) if self.rows % n == 0 and self.fixed + n * self.each <= room
        ]
        return (
            f"--set {self.key}={max(fitting)}" if fitting else "use a smaller model, or a machine with more"
        )


def trains_on_cpu(devices: int) -> bool:
    """Return True if one process trains without a GPU, for which alone the memory is counted here."""
    return devices == 1 and current_device().device == "cpu"


def largest_passes(recipe: Recipe, stages: Iterable[Stage], shape: Shape, state: int) -> Passes | None:
    """Return the passes that take most memory.

    None if a stage's rows have no limit, no stage trains, or the model's activations cannot be counted.
    """
    found, counted = [], cache(partial(model_size.activation_bytes, recipe.model))
    for stage in stages:
        if isinstance(stage, FineTuning):
            key = "warmup.sft.micro_batch" if stage.demonstrated else "sft.micro_batch"
            rows, tokens = stage.config.share(1), (learned := stage.config.max_tokens)
        elif isinstance(stage, Reinforcement) and stage.config.trainer == "trl":
            if recipe.data.max_prompt_tokens is None:
                return None
            config, key = stage.config, "rl.micro_batch"
            tokens, learned = recipe.data.max_prompt_tokens + config.max_tokens, config.max_tokens
            rows = config.shares(1)[0]
            if config.token_budget is not None:  # one pack in place of the rows
                key, rows, tokens = "rl.token_budget", 1, (learned := max(tokens, config.token_budget))
        else:
            continue
        if (activations := counted(tokens)) is None:
            return None
        # An output layer that is not trained is applied to a part of the tokens after the other.
        scored = learned if shape.adapter is None else min(learned, PART)
        logits = LOGITS * FROZEN * shape.vocabulary * scored
        fixed, each = state + LIBRARIES + CHECKPOINT * shape.trained, int(FREED * (activations + logits))
        found.append(Passes(stage.name, key, rows, tokens, fixed, each))
    return max(found, key=lambda one: one.total, default=None)
