"""Training methods: functions from a recipe to the stages of a run, and the blocks that they are built from.

A method is chosen with `method = "NAME"` in a recipe. Other packages register theirs in the entry-point group
`tirjudge.training_methods`; the table `[method_options]` holds the keyword arguments of the function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tirjudge_environments import derive_seed
from tirjudge_training.recipe import METHODS, Recipe
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.stages.base import Stage
from tirjudge_training.stages.best_step import Measurement, Selection
from tirjudge_training.stages.demonstrations import Demonstrations
from tirjudge_training.stages.reinforcement import Reinforcement
from tirjudge_training.stages.rejection import Rejection
from tirjudge_training.stages.screen import Screen
from tirjudge_training.stages.sft import Answering, FineTuning
from tirjudge_training.stages.teacher import DialogueRendering, TeacherSampling

DEMONSTRATIONS, WARM_UP, SCREEN, BASE, HELDOUT = "demonstrations", "warmup", "screen", "base", "heldout-"
"""The names of the stages before a warm-up, of the warm-up and of the screening of rows, the name of the
initial model, and the prefix of measuring stages."""
REJECTION, TUNED = "rejection", "sft"
"""The names of rejection sampling and of SFT on its samples, which a round's number follows."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages of a run, in the order in which they run."""

    stages: tuple[Stage, ...]
    result: str
    """The name of the stage whose model is the result of the run."""
    reserves: bool = False
    """True if a stage learns from the rows that `data.reserved` sets apart from RL."""

    @property
    def models(self) -> dict[str, str | None]:
        """Every measured model: its name, and the stage that made it (None for the base model)."""
        return {stage.name.removeprefix(HELDOUT): stage.start for stage in self.stages if stage.measures}


def pipeline_of(recipe: Recipe) -> Pipeline:
    """Return the stages of a recipe's training method. Raises ValueError if the recipe lacks a setting."""
    return cast(Pipeline, METHODS.open(recipe.method, recipe, **(recipe.method_options or {})))


def rl(recipe: Recipe) -> Pipeline:
    """RL alone, from the base model or from its warm-up on demonstrations."""
    start, stages = initial_model(recipe)
    select = recipe.validation.select
    stages += screen(recipe, start)
    stages.append(reinforce(recipe, "rl", start, validate=select))
    if select:
        stages.append(select_step(recipe, "select", "rl", recipe.rl.steps))
    result = "select" if select else "rl"
    return Pipeline((*stages, *measure(recipe, "rl", result)), result)


def iterative(recipe: Recipe) -> Pipeline:
    """TIR-Judge-Zero: RL, then rounds of rejection sampling, SFT from the initial model, and RL (TIR §4.3).

    Each RL stage ends with the choice of its best step.
    """
    rounds = recipe.iterate.rounds
    steps = recipe.iterate.steps or recipe.rl.steps
    start, stages = initial_model(recipe)
    stages += screen(recipe, start)
    stages += _best_of_rl(recipe, "0", start, recipe.rl.steps)
    for number in range(1, rounds + 1):
        stages += relearn(recipe, f"-{number}", sampler=f"select-{number - 1}", start=start)
        stages += _best_of_rl(recipe, str(number), f"sft-{number}", steps)
    if recipe.iterate.control:
        # After the result, which does not depend on them: as many steps of RL without the rounds, and a round
        # without any RL.
        stages += _best_of_rl(recipe, "continued", "select-0", rounds * steps)
        stages += relearn(recipe, "-only", sampler=start, start=start)
    return Pipeline(tuple(stages), f"select-{rounds}")


def rejection(recipe: Recipe) -> Pipeline:
    """Rejection sampling and SFT on it without any RL (the rejection-sampled arm of TIR Fig. 5)."""
    start, stages = initial_model(recipe)
    rounds = recipe.rejection.rounds
    for number in range(1, rounds + 1):
        # The first has no number, so that its names are the same however many rounds follow.
        suffix = f"-{number}" if number > 1 else ""
        # Its seeds have one where others follow, as when its folders had one.
        seeds = f"-{number}" if rounds > 1 else ""
        stages += relearn(recipe, suffix, sampler=start, start=start, seeds=seeds)
        start = f"{TUNED}{suffix}"
    return Pipeline(tuple(stages), f"{TUNED}{suffix}")


def distill(recipe: Recipe) -> Pipeline:
    """TIR-Judge-Distill: SFT on the dialogues that a teacher got right, then RL (TIR §4.3)."""
    teacher = recipe.teacher
    if not (teacher.model and teacher.base_url):
        raise ValueError("distillation needs a teacher: --teacher MODEL and --teacher-base-url URL")
    start, opening = initial_model(recipe)
    # Both stages choose the same tasks, hence the common seed.
    drawn = seed(recipe, "teacher")
    lessons = DialogueRendering(name="lessons", seed=drawn, teacher="teacher", start=start, config=teacher)
    stages = [
        # The teacher comes first, so that a wrong address or key is noticed before anything is trained.
        TeacherSampling(name="teacher", seed=drawn, config=teacher),
        *opening,
        lessons,
        fine_tune(recipe, "sft", start, lessons, teacher.prompts),
        *measure(recipe, "sft", "sft"),
        *screen(recipe, "sft"),
        reinforce(recipe, "rl", "sft", validate=True),
        select_step(recipe, "select", "rl", recipe.rl.steps),
        *measure(recipe, "rl", "select"),
    ]
    return Pipeline(tuple(stages), "select", reserves=True)


def answers(recipe: Recipe) -> Pipeline:
    """SFT on the right answers, without reasoning and without RL (RM-R1, section 4.3)."""
    start, opening = initial_model(recipe)
    answering = Answering(name="answers", seed=seed(recipe, "answers"), start=start, config=recipe.answers)
    tuned = fine_tune(recipe, "sft", start, answering, recipe.answers.prompts)
    stages = [*opening, answering, tuned, *measure(recipe, "sft", "sft")]
    return Pipeline(tuple(stages), "sft", reserves=True)


def demonstrations(recipe: Recipe) -> Pipeline:
    """SFT of a base model on demonstrated dialogues: what RL would start from, as a model of its own."""
    if recipe.data.demonstrations is None:
        raise ValueError("it needs rows to demonstrate: name them in data.demonstrations")
    _, stages = initial_model(recipe)
    return Pipeline(tuple(stages), WARM_UP)


def _best_of_rl(recipe: Recipe, name: str, start: str | None, steps: int) -> list[Stage]:
    """Return RL and the choice of its best step, which is the model that is measured."""
    return [
        reinforce(recipe, f"rl-{name}", start, steps=steps, validate=True),
        select_step(recipe, f"select-{name}", f"rl-{name}", steps),
        *measure(recipe, f"rl-{name}", f"select-{name}"),
    ]


def initial_model(recipe: Recipe) -> tuple[str | None, list[Stage]]:
    """Return the name of the stage that makes the initial model, and the stages that make and measure it.

    The name is None if the recipe has no warm-up on demonstrations.
    """
    if recipe.data.demonstrations is None:
        return None, measure(recipe, BASE, None)
    return WARM_UP, [*_demonstrated(recipe), *measure(recipe, WARM_UP, WARM_UP)]


def _demonstrated(recipe: Recipe) -> list[Stage]:
    """Return the stages that warm a base model up on demonstrated dialogues."""
    config = recipe.demonstrations
    return [
        # The dialogues come first, since they need no model: a file without any good program is refused soon.
        Demonstrations(
            name=DEMONSTRATIONS,
            seed=seed(recipe, DEMONSTRATIONS),
            config=config,
            rollout=recipe.rl.model_copy(),
        ),
        *(measure(recipe, BASE, None) if recipe.heldout.before else []),
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


def screen(recipe: Recipe, start: str | None) -> list[Stage]:
    """Return the pass that screens the rows of all RL stages with the model of `start`; empty without one."""
    config = recipe.rl.screen
    if config is None:
        return []
    drawn = seed(recipe, SCREEN)
    return [Screen(name=SCREEN, seed=drawn, start=start, config=config, rollout=recipe.rl)]


def reinforce(
    recipe: Recipe, name: str, start: str | None, *, steps: int | None = None, validate: bool = False
) -> Stage:
    """Return RL from the model of `start`, for `steps` generation batches or as many as the recipe has.

    With `validate` its steps are validated, for a selection among them.
    """
    config, rows = recipe.rl, recipe.rl.rows
    if steps:
        # A stage of more batches than `epochs` takes goes through as many more rows. Before epochs are
        # counted there are no steps to compare with.
        rows = -(-rows * steps // config.steps) if rows and config.steps else rows
        config = config.model_copy(update={"steps": steps, "epochs": None, "rows": rows})
    return Reinforcement(
        name=name,
        seed=seed(recipe, name),
        start=start,
        config=config,
        lora=recipe.model.lora,
        validation=recipe.validation if validate else None,
        answers=_answers(recipe) if validate else None,
        screen=SCREEN if config.screen is not None else None,
    )


def select_step(recipe: Recipe, name: str, stage: str, steps: int) -> Stage:
    """Return the choice of the best step of an RL stage of `steps` generation batches."""
    return Selection(name=name, stage=stage, candidates=-(-steps // recipe.validation.every))


def _answers(recipe: Recipe) -> RolloutConfig:
    """Return the limits of the answers to validation tasks, without the other settings of RL."""
    rollout = recipe.heldout.rollout(recipe.rl)
    return RolloutConfig(**{name: getattr(rollout, name) for name in RolloutConfig.model_fields})


def relearn(
    recipe: Recipe, suffix: str, *, sampler: str | None, start: str | None, seeds: str | None = None
) -> list[Stage]:
    """Return SFT of the model of `start` on the trajectories that the one of `sampler` got right.

    The stages are named `rejection` and `sft`, with the suffix. `seeds` is another suffix for the names that
    their seeds come from.
    """
    config, seeds = recipe.rejection, suffix if seeds is None else seeds
    name, drawn = f"{TUNED}{suffix}", seed(recipe, f"{REJECTION}{seeds}")
    samples = Rejection(
        name=f"{REJECTION}{suffix}", seed=drawn, start=sampler, config=config, rollout=recipe.rl
    )
    tuned = fine_tune(recipe, name, start, samples, config.prompts)
    return [
        samples,
        tuned.model_copy(update={"seed": seed(recipe, f"{TUNED}{seeds}")}),
        *measure(recipe, name, name),
    ]


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
