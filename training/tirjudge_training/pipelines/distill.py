"""TIR-Judge-Distill: SFT on the dialogues that a teacher got right, then RL (TIR §4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tirjudge_training.pipelines.base import Method, PublishedCost
from tirjudge_training.pipelines.pipeline import Pipeline, fine_tune, initial_model, measure, rl, seed, select
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.distillation import DialogueRendering, TeacherSampling

TEACHER, LESSONS, SFT, RL, SELECT = "teacher", "lessons", "sft", "rl", "select"


class Distill(Method):
    """The training method `distill`, with the teacher of the table `[teacher]`."""

    reserves = True
    published = PublishedCost(sft=1.0, rejection=1.5, rl=8.5, compute=210, teacher=130)

    def build(self, recipe: Recipe) -> Pipeline:
        start, opening = initial_model(recipe)
        # Both stages choose the same tasks, hence the common seed.
        task_seed = seed(recipe, TEACHER)
        lessons = DialogueRendering(
            name=LESSONS, seed=task_seed, teacher=TEACHER, start=start, config=recipe.teacher
        )
        stages = [
            # The teacher comes first, so that a wrong address or key is noticed before anything is trained.
            TeacherSampling(name=TEACHER, seed=task_seed, config=recipe.teacher),
            *opening,
            lessons,
            fine_tune(recipe, SFT, start, lessons, recipe.teacher.prompts),
            *measure(recipe, SFT, SFT),
            rl(recipe, RL, SFT, select=True),
            select(recipe, SELECT, RL, recipe.rl.steps),
            *measure(recipe, RL, SELECT),
        ]
        return Pipeline(tuple(stages), SELECT)

    def check(self, recipe: Recipe) -> None:
        if not (recipe.teacher.model and recipe.teacher.base_url):
            raise ValueError("distillation needs a teacher: --teacher MODEL and --teacher-base-url URL")
        if recipe.generated and recipe.teacher.prompts is None:
            raise ValueError("the generated tasks are endless: set how many to use with teacher.prompts")

    def describe(self, recipe: Recipe) -> str:
        return "SFT on a teacher's dialogues and RL"

    def provenance(self, recipe: Recipe, results: Mapping[str, Any]) -> str:
        return f"{results[LESSONS]['samples']:,} dialogues of the SFT are {recipe.teacher.model}'s"
