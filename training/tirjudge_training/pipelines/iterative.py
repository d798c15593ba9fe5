"""TIR-Judge-Zero: RL, then rounds of rejection sampling, SFT from the initial model, and RL (TIR §4.3)."""

from __future__ import annotations

from tirjudge_training.pipelines.base import Method, PublishedCost
from tirjudge_training.pipelines.pipeline import (
    Pipeline,
    check_rejection,
    initial_model,
    measure,
    relearn,
    rl,
    select,
)
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.base import Stage


class Iterative(Method):
    """The training method `iterative`, with the settings of the table `[iterate]`.

    RL-0 is followed by `rounds` further RL stages, each of which starts from an SFT model. Each RL stage ends
    with the choice of its best checkpoint.
    """

    published = PublishedCost(sft=2.5, rejection=3.5, rl=23.0, compute=690, teacher=0)

    def build(self, recipe: Recipe) -> Pipeline:
        start, stages = initial_model(recipe)
        stages += _reinforce(recipe, "0", start, recipe.rl.steps)
        for number in range(1, recipe.iterate.rounds + 1):
            stages += relearn(recipe, f"-{number}", sampler=f"select-{number - 1}", start=start)
            stages += _reinforce(recipe, str(number), f"sft-{number}", _steps(recipe))
        # After the result: it does not depend on the controls.
        if recipe.iterate.control:
            stages += _control(recipe, start)
        return Pipeline(tuple(stages), f"select-{recipe.iterate.rounds}")

    def check(self, recipe: Recipe) -> None:
        check_rejection(recipe)

    def describe(self, recipe: Recipe) -> str:
        rounds = recipe.iterate.rounds
        return f"RL and {rounds} rounds of rejection sampling, SFT of the warm-up's model, and RL"


def _reinforce(recipe: Recipe, name: str, start: str | None, steps: int) -> list[Stage]:
    """Return RL and the choice of its best checkpoint, which is the model that is measured."""
    return [
        rl(recipe, f"rl-{name}", start, steps=steps, select=True),
        select(recipe, f"select-{name}", f"rl-{name}", steps),
        *measure(recipe, f"rl-{name}", f"select-{name}"),
    ]


def _control(recipe: Recipe, start: str | None) -> list[Stage]:
    """Return the control arms: as many steps of RL without the rounds, and a round without any RL."""
    return [
        *_reinforce(recipe, "continued", "select-0", recipe.iterate.rounds * _steps(recipe)),
        *relearn(recipe, "-only", sampler=start, start=start),
    ]


def _steps(recipe: Recipe) -> int:
    """Return the number of generation batches of the RL stage that ends a round."""
    return recipe.iterate.steps or recipe.rl.steps
