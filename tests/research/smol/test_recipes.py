"""The recipes of the comparisons: loaded by path, they extend the shipped recipe and can be shrunk."""

from __future__ import annotations

from pathlib import Path

import pytest

import research.smol
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load, load_arms
from tirjudge_training.run.shrink import shrunk

FOLDER = Path(research.smol.__file__).parent / "recipes"
ONE_RUN = FOLDER / "smol-many.toml"
"""The recipe of one run on a GPU, without arms."""
RECIPES = sorted(set(FOLDER.glob("*.toml")) - {ONE_RUN})


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_extends_the_shipped_recipe_and_can_be_shrunk(path: Path, tmp_path: Path) -> None:
    recipe = load(Recipe, str(path))
    assert recipe.model.lora == load(Recipe, "smol").model.lora
    assert len(load_arms(Recipe, str(path))) >= 4
    assert shrunk(recipe, tmp_path).rl.steps == 2


def test_the_run_on_a_gpu_trains_the_shipped_judges_formats_once() -> None:
    recipe, shipped = load(Recipe, str(ONE_RUN)), load(Recipe, "smol")
    assert recipe.environments == shipped.environments
    assert recipe.model.lora == shipped.model.lora
    assert recipe.warmup.sft.max_tokens == shipped.warmup.sft.max_tokens
    assert recipe.method == "demonstrations"
    assert recipe.data.heldout is None
