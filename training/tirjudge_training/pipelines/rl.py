"""RL alone, from the base model or from the miniature's warm-up."""

from __future__ import annotations

from tirjudge_training.pipelines.base import Method
from tirjudge_training.pipelines.pipeline import Pipeline, initial_model, measure, rl
from tirjudge_training.recipe import Recipe

RL = "rl"


class RlAlone(Method):
    """The training method `rl`."""

    def build(self, recipe: Recipe) -> Pipeline:
        start, opening = initial_model(recipe)
        return Pipeline((*opening, rl(recipe, RL, start), *measure(recipe, RL, RL)), RL)

    def describe(self, recipe: Recipe) -> str:
        return "RL"
