"""The stages of a run in order, and the building blocks that training methods put them together from."""

from __future__ import annotations

from dataclasses import dataclass

from tirjudge_environments import derive_seed
from tirjudge_training.recipe import Recipe
from tirjudge_training.rl.engine import RolloutConfig
from tirjudge_training.stages.base import Stage
from tirjudge_training.stages.demonstrations import Demonstrations
from tirjudge_training.stages.fine_tuning import FineTuning
from tirjudge_training.stages.measurement import Measurement
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.rejection import Rejection
from tirjudge_training.stages.selection import Selection
from tirjudge_training.stages.warm_up import WarmUp

DEMONSTRATIONS, WARM_UP, BASE, HELDOUT = "demonstrations", "warmup", "base", "heldout-"
"""The names of the stages before a warm-up and of the warm-up, the name of the initial model, and the prefix
of measuring stages."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages of a run, in the order in which they run."""

    stages: tuple[Stage, ...]
    result: str
    """The name of the stage whose model is the result of the run."""

    @property
    def making(self) -> tuple[Stage, ...]:
        """The stages up to the one that makes the result; those after it are controls."""
        return self.stages[: [stage.name for stage in self.stages].index(self.result) + 1]

    @property
    def models(self) -> dict[str, str | None]:
        """Every measured model: its name, and the stage that made it (None for the base model)."""
        return {stage.name.removeprefix(HELDOUT): stage.start for stage in self.stages if stage.measures}


def initial_model(recipe: Recipe) -> tuple[str | None, list[Stage]]:
    """Return the name of the stage that makes the initial model, and the stages that make and measure it.

    The name is None if the recipe names a base model without a warm-up on demonstrations.
    """
    if recipe.model.base is not None and recipe.data.demonstrations is not None:
        return WARM_UP, [*_demonstrated(recipe), *measure(recipe, WARM_UP, WARM_UP)]
    if recipe.model.base is not None:
        return None, measure(recipe, BASE, None)
    # A text-only run must not learn in its warm-up to write programs that no prompt offers later.
    corpus = recipe.warmup.corpus.for_share(recipe.data.no_tools)
    config = recipe.warmup.model_copy(update={"corpus": corpus})
    warm_up = WarmUp(name=WARM_UP, seed=recipe.seed, config=config)
    return WARM_UP, [warm_up, *measure(recipe, BASE, WARM_UP)]


def _demonstrated(recipe: Recipe) -> list[Stage]:
    """Return the stages that warm a base model up on demonstrated dialogues."""
    config = recipe.demonstrations
    return [
        Demonstrations(
            name=DEMONSTRATIONS,
            seed=seed(recipe, DEMONSTRATIONS),
            config=config,
            rollout=recipe.rl.model_copy(),
        ),
        FineTuning(
            name=WARM_UP,
            seed=seed(recipe, WARM_UP),
            samples=(DEMONSTRATIONS,),
            prompts=config.rows,
            drawn=seed(recipe, DEMONSTRATIONS),
            demonstrated=True,
            families=config.families,
            config=recipe.warmup.sft,
            lora=recipe.model.lora,
        ),
    ]


def rl(
    recipe: Recipe, name: str, start: str | None, *, steps: int | None = None, select: bool = False
) -> Stage:
    """Return RL from the model of `start`, for `steps` generation batches or as many as the recipe has.

    With `select` a selection among its steps follows.
    """
    config, rows = recipe.rl, recipe.rl.rows
    if steps:
        # A stage of more batches than `epochs` takes goes through as many more rows.
        rows = rows and -(-rows * steps // config.steps)
        config = config.model_copy(update={"steps": steps, "epochs": None, "rows": rows})
    return Reinforcement(
        name=name,
        seed=seed(recipe, name),
        start=start,
        config=config,
        lora=recipe.model.lora,
        validation=recipe.validation if select else None,
        answers=_answers(recipe) if select else None,
    )


def select(recipe: Recipe, name: str, stage: str, steps: int) -> Stage:
    """Return the choice of the best step of an RL stage of `steps` generation batches."""
    return Selection(
        name=name,
        stage=stage,
        candidates=-(-steps // recipe.validation.every),
    )


def _answers(recipe: Recipe) -> RolloutConfig:
    """Return the limits of the answers to validation tasks, without the other settings of RL."""
    rollout = recipe.heldout.rollout(recipe.rl)
    return RolloutConfig(**{name: getattr(rollout, name) for name in RolloutConfig.model_fields})


def check_rejection(recipe: Recipe) -> None:
    """Raise ValueError if it is not known how many tasks rejection sampling uses."""
    if recipe.generated and recipe.rejection.prompts is None:
        raise ValueError("the generated tasks are endless: set how many to use with rejection.prompts")


def relearn(recipe: Recipe, suffix: str, *, sampler: str | None, start: str | None) -> list[Stage]:
    """Return SFT of the model of `start` on the trajectories that the one of `sampler` got right.

    The stages are named `rejection` and `sft`, with the suffix.
    """
    rejection, name = reject(recipe, f"rejection{suffix}", sampler), f"sft{suffix}"
    return [
        rejection,
        fine_tune(recipe, name, start, rejection, recipe.rejection.prompts),
        *measure(recipe, name, name),
    ]


def reject(recipe: Recipe, name: str, start: str | None) -> Stage:
    """Return rejection sampling with the model of `start`."""
    return Rejection(
        name=name, seed=seed(recipe, name), start=start, config=recipe.rejection, rollout=recipe.rl
    )


def fine_tune(recipe: Recipe, name: str, start: str | None, samples: Stage, prompts: int | None) -> Stage:
    """Return SFT of the model of `start` on the samples that the stage `samples` kept of `prompts` tasks."""
    return FineTuning(
        name=name,
        seed=seed(recipe, name),
        start=start,
        samples=(samples.name,),
        prompts=prompts,
        drawn=samples.seed,
        config=recipe.sft,
        lora=recipe.model.lora,
    )


def measure(recipe: Recipe, what: str, start: str | None) -> list[Stage]:
    """Return the reported measurement of the model of `start`; no stage if there are no held-out tasks."""
    if not recipe.measured:
        return []
    return [Measurement(name=HELDOUT + what, start=start, config=recipe.heldout, rollout=recipe.rl)]


def seed(recipe: Recipe, name: str) -> int:
    """Return the seed of the stage of this name; no two stages have the same."""
    # By name, not by position: adding control stages leaves the seeds of the others as they are.
    return derive_seed("stage", name, recipe.seed)
