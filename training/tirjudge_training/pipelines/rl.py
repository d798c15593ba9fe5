"""RL alone, from the base model or from the miniature's warm-up."""

from __future__ import annotations

from tirjudge_training.pipelines.base import Method
from tirjudge_training.pipelines.pipeline import Pipeline, initial_model, measure, rl, select
from tirjudge_training.recipe import Recipe

RL, SELECT = "rl", "select"


class RlAlone(Method):
    """The training method `rl`."""

    def build(self, recipe: Recipe) -> Pipeline:
        start, stages = initial_model(recipe)
        stages.append(rl(recipe, RL, start, select=recipe.validation.select))
        result = RL
        if recipe.validation.select:
            stages.append(select(recipe, SELECT, RL, recipe.rl.steps))
            result = SELECT
        return Pipeline((*stages, *measure(recipe, RL, result)), result)

    def describe(self, recipe: Recipe) -> str:
        return "RL"
