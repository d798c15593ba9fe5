"""Answer-only training: SFT on the right answers, without reasoning and without RL (RM-R1, section 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_training.pipelines.base import Method
from tirjudge_training.pipelines.pipeline import Pipeline, fine_tune, initial_model, measure, seed
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.answering import Answering

ANSWERS, SFT = "answers", "sft"


class Answers(Method):
    """The training method `answers`, with the settings of the table `[answers]`."""

    reserves = True

    def build(self, recipe: Recipe) -> Pipeline:
        start, opening = initial_model(recipe)
        answering = Answering(name=ANSWERS, seed=seed(recipe, ANSWERS), start=start, config=recipe.answers)
        stages = [
            *opening,
            answering,
            fine_tune(recipe, SFT, start, answering, recipe.answers.prompts),
            *measure(recipe, SFT, SFT),
        ]
        return Pipeline(tuple(stages), SFT)

    def check(self, recipe: Recipe) -> None:
        if recipe.generated:
            raise ValueError("method answers needs labelled rows of your own: name them in data.train")

    def describe(self, recipe: Recipe) -> str:
        return "SFT on the right answers"

    def shrink(self) -> Mapping[str, Any]:
        return {"answers": {"prompts": 4}}
