"""Lengths and speeds of a plan, measured on this machine with the first stage of RL that a run would do."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tirjudge.console_text import first_line
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_sandbox import SandboxUnavailable
from tirjudge_training.data.base import Data
from tirjudge_training.recipe import Rates, Recipe
from tirjudge_training.rl.metrics import METRICS
from tirjudge_training.run.context import context, data_of, with_dtype
from tirjudge_training.run.plan import ASSUMED, NoRows
from tirjudge_training.stages.base import Say
from tirjudge_training.stages.reinforcement import Reinforcement

TASKS, SAMPLES = 2, 4
"""Groups of the measured batch and their size, half a minute of an idle core."""


def with_measured_rates(recipe: Recipe, data: Data, *, say: Say) -> tuple[Recipe, str]:
    """Return the recipe with measured rates if it asks for them, and words for where its rates come from.

    Without the model, a sandbox or rows they stay those of the recipe, and the words say why.
    """
    if not recipe.rates.measure or isinstance(data, NoRows):
        return recipe, ASSUMED
    say("measuring the speed of this machine, which takes about half a minute")
    try:
        rates = _measured(recipe)
    except (ImportError, OSError, RuntimeError, SandboxUnavailable, ValueError) as error:
        return recipe, f"not measured ({first_line(error)}), {ASSUMED}"
    return recipe.model_copy(update={"rates": rates}), f"measured just now with {TASKS * SAMPLES} rollouts"


def _measured(recipe: Recipe) -> Rates:
    """Sample and train one small batch in a temporary folder; return its lengths and speeds."""
    changes = {
        "steps": 1,
        "epochs": None,
        "rows": None,
        "groups": TASKS,
        "samples": SAMPLES,
        "optimizer_steps": 1,
        "replacement_rounds": 0,
        # Every rollout is trained, whether or not its group has a learning signal.
        "filter": "none",
        "screen": None,
        "report_to": (),
    }
    config = type(recipe.rl).model_validate({**recipe.rl.model_dump(), **changes})
    stage = Reinforcement(name="rl", config=config, lora=recipe.model.lora)
    with tempfile.TemporaryDirectory(prefix="tirjudge-plan-") as made:
        folder = Path(made)
        recipe = with_dtype(recipe, folder)
        run = context(recipe, data_of(recipe), folder, lambda line: None)
        with RunFolder(folder / stage.name) as own:
            stage.work(own, run)
        (row,) = read_lines(folder / stage.name / METRICS)
    rollouts = TASKS * SAMPLES
    response = row["tokens/model"] + row["tokens/sandbox"]
    seconds = row["seconds/logprobs"] + row["seconds/train"]
    return recipe.rates.model_copy(
        update={
            "prompt_tokens": max(1, round(row["tokens/trained"] / rollouts - response)),
            "response_tokens": max(1, round(response)),
            "sampled_per_second": rollouts * response / row["seconds/rollout"],
            "trained_per_second": row["tokens/trained"] / seconds,
        }
    )
