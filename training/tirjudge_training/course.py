"""The course of a run: its stages in order, from a recipe."""

from __future__ import annotations

from dataclasses import dataclass

from tirjudge_environments import derive_seed
from tirjudge_training.recipe import Recipe
from tirjudge_training.stages.base import Stage
from tirjudge_training.stages.fine_tuning import FineTuning
from tirjudge_training.stages.measurement import Measurement
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.rejection import Rejection
from tirjudge_training.stages.selection import Selection, candidates
from tirjudge_training.stages.warm_up import WarmUp

WARM_UP, BASE, HELDOUT = "warmup", "base", "heldout-"


@dataclass(frozen=True, slots=True)
class Course:
    """What a run does, in this order."""

    stages: tuple[Stage, ...]
    result: str
    """The stage whose model is the run's."""

    @property
    def making(self) -> tuple[Stage, ...]:
        """The stages up to the result; those behind it are controls."""
        return self.stages[: [stage.name for stage in self.stages].index(self.result) + 1]

    @property
    def models(self) -> dict[str, str | None]:
        """Every model that is measured: its name and the stage that made it, None for the base."""
        return {
            stage.name.removeprefix(HELDOUT): stage.start
            for stage in self.stages
            if isinstance(stage, Measurement)
        }


def reinforce(recipe: Recipe) -> Course:
    """RL alone."""
    start, opening = begin(recipe)
    return Course((*opening, rl(recipe, "rl", start), *measure(recipe, "rl", "rl")), "rl")


def begin(recipe: Recipe) -> tuple[str | None, list[Stage]]:
    """(where the initial model comes from, the stages that make and measure it)."""
    if recipe.model.base is not None:
        return None, measure(recipe, BASE, None)
    corpus = recipe.warmup.corpus.for_share(recipe.data.no_tools)
    config = recipe.warmup.model_copy(update={"corpus": corpus})
    warm_up = WarmUp(name=WARM_UP, seed=recipe.seed, config=config)
    return WARM_UP, [warm_up, *measure(recipe, BASE, WARM_UP)]


def rl(recipe: Recipe, name: str, start: str | None, *, steps: int | None = None) -> Stage:
    """RL from the model of `start`, for `steps` generation batches or as many as the recipe's."""
    config = recipe.rl.model_copy(update={"steps": steps, "epochs": None}) if steps else recipe.rl
    return Reinforcement(
        name=name, seed=seed(recipe, name), start=start, config=config, lora=recipe.model.lora
    )


def select(recipe: Recipe, name: str, stage: str, steps: int) -> Stage:
    """The best checkpoint of an RL stage of so many generation batches."""
    return Selection(
        name=name,
        stage=stage,
        candidates=candidates(recipe.rl, steps),
        config=recipe.validation,
        rollout=recipe.heldout.rollout(recipe.rl),
    )


def reject(recipe: Recipe, name: str, start: str | None) -> Stage:
    """Rejection sampling with the model of `start`."""
    return Rejection(
        name=name, seed=seed(recipe, name), start=start, config=recipe.rejection, rollout=recipe.rl
    )


def fine_tune(recipe: Recipe, name: str, start: str | None, samples: str, prompts: int | None) -> Stage:
    """SFT of the model of `start` on what the stage `samples` kept of `prompts` tasks."""
    return FineTuning(
        name=name,
        seed=seed(recipe, name),
        start=start,
        samples=(samples,),
        prompts=prompts,
        config=recipe.sft,
        lora=recipe.model.lora,
    )


def measure(recipe: Recipe, what: str, start: str | None) -> list[Stage]:
    """The reported measurement of the model of `start`; none where there is nothing to measure on."""
    if not recipe.measured:
        return []
    return [Measurement(name=HELDOUT + what, start=start, config=recipe.heldout, rollout=recipe.rl)]


def seed(recipe: Recipe, name: str) -> int:
    """A stage's own: no two stages draw the same."""
    return derive_seed("stage", name, recipe.seed)
