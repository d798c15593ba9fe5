"""SFT of a base model on demonstrated dialogues alone: what RL would start from, as a model of its own."""

from __future__ import annotations

from tirjudge_training.pipelines.base import Method
from tirjudge_training.pipelines.pipeline import WARM_UP, Pipeline, initial_model
from tirjudge_training.recipe import Recipe


class DemonstrationsAlone(Method):
    """The training method `demonstrations`, with the settings of `[demonstrations]` and `[warmup.sft]`."""

    def build(self, recipe: Recipe) -> Pipeline:
        _, stages = initial_model(recipe)
        return Pipeline(tuple(stages), WARM_UP)

    def check(self, recipe: Recipe) -> None:
        if recipe.data.demonstrations is None:
            raise ValueError(
                "method demonstrations needs rows to demonstrate: name them in data.demonstrations"
            )

    def describe(self, recipe: Recipe) -> str:
        return "SFT on demonstrated dialogues"
