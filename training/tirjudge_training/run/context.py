"""A recipe on this machine: its rows, the steps and types that it stands for, and the note of its models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tirjudge.models.resolve import read_note
from tirjudge_environments import ChatEncoder
from tirjudge_environments.formats.tir import TirFormat
from tirjudge_environments.registry import reward_options
from tirjudge_environments.templates import OwnPrompts
from tirjudge_training import model_folder
from tirjudge_training.data.base import TRAIN, WITHOUT_TOOLS, Data, demonstrated
from tirjudge_training.data.own_rows import JUDGES, RowData, require_rows
from tirjudge_training.distributed.device import Kernels, current_device, weights_dtype
from tirjudge_training.distributed.processes import ALONE, Processes
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import CONFIG, BadRecipe, recorded_config
from tirjudge_training.run.model_size import model_errors
from tirjudge_training.stages.base import Run, Say


def data_of(recipe: Recipe) -> Data:
    """Open the data of a recipe; raises BadRecipe for unusable judges or rows, OSError for missing files."""
    try:
        require_rows(recipe.data)
        encoder = None if recipe.data.max_prompt_tokens is None else encoder_of(recipe)
        return RowData(recipe.data, recipe.environments, encoder=encoder)
    except ValueError as error:
        raise BadRecipe(str(error)) from None


def encoder_of(recipe: Recipe) -> ChatEncoder:
    """Return the encoder of the base model's prompts; raises BadRecipe if its chat template is unusable."""
    base = recipe.model.base
    with model_errors(base):
        tokenizer = model_folder.load_tokenizer(base)
    try:
        return ChatEncoder(tokenizer, enable_thinking=enable_thinking(recipe))
    except ValueError as error:
        raise BadRecipe(f"model.base: {base}: {error}") from None


def counted(recipe: Recipe, data: Data) -> Recipe:
    """Return the recipe with `rl.epochs` converted to `rl.rows` and the most `rl.steps` for them.

    A warm-up on the demonstrations among the training rows is taken out if there are none.
    """
    if recipe.data.demonstrations == TRAIN and not demonstrated(data, 1, recipe.seed):
        without = recipe.data.model_copy(update={"demonstrations": None})
        recipe = recipe.model_copy(update={"data": without})
    if recipe.rl.epochs is None:
        return recipe
    steps, rows = data.steps(recipe.rl.groups, recipe.rl.epochs)
    rl = recipe.rl.model_copy(update={"steps": steps, "epochs": None, "rows": rows})
    return recipe.model_copy(update={"rl": rl})


def with_dtype(recipe: Recipe, folder: Path) -> Recipe:
    """Return the recipe with the type of the weights that `model.dtype = "auto"` stands for in this folder.

    A run that another machine began goes on with the type that it began with. Where nothing is stated, an
    adapter on a GPU has `auto`.
    """
    adapted, stated = recipe.model.lora is not None, recipe.model.dtype
    if stated != "auto" and (stated or not adapted or current_device().device == "cpu"):
        return recipe
    config = folder / CONFIG
    begun = recorded_config(config) if config.is_file() else {}
    dtype = begun.get("model", {}).get("dtype")
    if dtype is None:
        # Rounded weights lose small updates, unless an adapter takes them.
        dtype = weights_dtype("auto") if adapted else "float32"
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"dtype": dtype})})


def context(recipe: Recipe, data: Data, folder: Path, say: Say, processes: Processes = ALONE) -> Run:
    """Return what the stages of a run share."""
    return Run(
        folder,
        recipe.model.start,
        data,
        say,
        recipe.meta_judge,
        processes,
        enable_thinking=enable_thinking(recipe),
        dtype=weights_dtype(recipe.model.dtype),
        kernels=Kernels(recipe.model.attn_implementation, recipe.model.liger),
        note=note_of(recipe, data),
    )


def enable_thinking(recipe: Recipe) -> bool | None:
    """Return the thinking mode of a run: the recipe's, else the one its base model was trained with."""
    stated, base = recipe.model.enable_thinking, recipe.model.start
    return read_note(base).enable_thinking if stated is None else stated


def note_of(recipe: Recipe, data: Data) -> dict[str, Any]:
    """Return the fields of the note that a model folder of this run gets: the prompts of its training.

    The token budget of the held-out measurement is noted too if the recipe sets one.
    """
    judges = [judge for judge in data.environments.values() if isinstance(judge, TirFormat)]
    note: dict[str, Any] = {
        "enable_thinking": enable_thinking(recipe),
        "max_tokens": recipe.heldout.max_tokens,
        "formats": _formats(recipe, data),
    }
    for name in ("prompts", "shown_chars"):
        # Prompts of one's own are whole in `formats`.
        found = (getattr(judge, name, None) for judge in judges)
        values = {value for value in found if not isinstance(value, OwnPrompts)}
        note |= {name: values.pop()} if len(values) == 1 else {}
    tools = recipe.rl.tools.servers
    return note | ({"tools": tools} if tools else {})


_UNNAMED = {"boundary": True, "name_variables": False}
"""Defaults of every training, which notes of earlier trainings do not name."""
_NOT_NOTED = {"order", "seed", "further_tools", "per_criterion"}
"""Options of formats that a note leaves out besides those of the reward: the order of a row's responses,
which the judge does not see, the tools besides Python, which the note has apart, and what a run asks for."""


def _formats(recipe: Recipe, data: Data) -> dict[str, dict[str, Any]]:
    """Return all options of each format that this run trains, without those in which its judges differ."""
    judges = recipe.environments or JUDGES
    formats: dict[str, dict[str, Any]] = {}
    for name, judge in data.environments.items():
        if isinstance(judge, BaseModel):
            options = judge.model_dump(mode="json", exclude=_NOT_NOTED | reward_options(judge))
            options = {key: value for key, value in options.items() if _UNNAMED.get(key) != value}
            format = (judges.get(name) or judges[name.removesuffix(WITHOUT_TOOLS)]).name
            known = formats.setdefault(format, options)
            formats[format] = {key: value for key, value in known.items() if options.get(key) == value}
    return formats
