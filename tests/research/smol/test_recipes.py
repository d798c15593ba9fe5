"""The recipes of the comparisons: loaded by path, they extend the shipped recipe and can be shrunk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import research.smol
from research.smol.training_rows.rows import PAIRWISE, Draft, output_lines
from tirjudge_training.data.base import demonstrated
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load, load_arms
from tirjudge_training.run.shrink import shrunk

FOLDER = Path(research.smol.__file__).parent / "recipes"
ONE_RUN = FOLDER / "smol-many.toml"
"""The recipe of one run on a GPU, without arms."""
CHECKS = FOLDER / "coder-checks.toml"
"""The recipe of a judge that writes its check first, without arms."""
LABELS = FOLDER / "coder-rl.toml"
"""The recipe of RL for a judge that writes its check first."""
RECIPES = sorted(set(FOLDER.glob("*.toml")) - {ONE_RUN, CHECKS, LABELS})


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


def test_labels_train_the_coder_as_it_is_and_after_demonstrations() -> None:
    arms = load_arms(Recipe, str(LABELS))
    prompts = {
        name: {one.options.get("prompts") for one in arm.environments.values()} for name, arm in arms.items()
    }
    assert prompts == {"zero": {None}, "demonstrated": {"coder"}}
    for arm in arms.values():
        assert arm.method == "iterative"
        assert arm.rl.steps + (arm.iterate.steps or 0) == 20
        assert {one.options["evidence"] for one in arm.environments.values()} == {"required"}


COUNT = "def commas(t): return t.count(',')"


def test_rows_of_checks_are_demonstrated_by_their_recipe(tmp_path: Path) -> None:
    """The file that the generator writes holds no judge that the recipe lacks."""
    checks = Draft(
        *("Write without commas.", ["No, not", "all small"], 1, "instruction-following", PAIRWISE, []),
        source="own",
        program=f"import re\n{COUNT}\ndef check(r):\n    return [commas(r) == 0]\n{output_lines(PAIRWISE)}",
    ).for_checks()
    rows = [{**checks.row(str(at)), "prompt": f"{at}: {checks.prompt}"} for at in range(40)]
    shown = rows[0]["demonstration"]["program"]
    assert shown == f"import re\ndef check(r):\n    return [commas(r) == 0]\n{COUNT}"
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = load(Recipe, str(CHECKS), [f'data.train="{path}"'])
    data = RowData(recipe.data, recipe.environments)
    shown = demonstrated(data, None, 0, ())
    assert {task.format for task in shown} == {"checks-pairwise"}
