"""Rejection sampling and SFT without any RL (the rejection-sampled arm of TIR Fig. 5)."""

from __future__ import annotations

from tirjudge_training.pipelines.base import Method
from tirjudge_training.pipelines.pipeline import Pipeline, check_rejection, initial_model, relearn
from tirjudge_training.recipe import Recipe


class RejectionAlone(Method):
    """The training method `rejection`, with the settings of `[rejection]` and `[sft]`.

    The initial model learns from its own samples that are right.
    """

    def build(self, recipe: Recipe) -> Pipeline:
        start, stages = initial_model(recipe)
        return Pipeline((*stages, *relearn(recipe, "", sampler=start, start=start)), "sft")

    def check(self, recipe: Recipe) -> None:
        check_rejection(recipe)

    def describe(self, recipe: Recipe) -> str:
        return "rejection sampling from its own model and SFT"
