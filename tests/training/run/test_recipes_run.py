"""The thinking mode of a recipe, from the command to the rollouts, the model folder and the judge."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.tiny_models import CHAT
from tests.training.one_batch import ONE_BATCH
from tests.training.train_command import train
from tirjudge.judging.judge_engine import JudgeEngine
from tirjudge.judging.options import JudgeOptions
from tirjudge.models.resolve import ModelNote, embedded_model, read_note
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import Message, Prompt
from tirjudge_environments.tools.base import ToolSettings
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.run.context import context


def rows(folder: Path) -> Path:
    """Five pairs with gold scores, of which one is held back for validation, and one with a long prompt."""
    path, scores = folder / "rows.jsonl", [8, 7]
    prompts = (*(f"q{n}" for n in range(5)), "long " * 2000)
    lines = ({"prompt": one, "responses": ["a", "b"], "gold_scores": scores} for one in prompts)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


PROMPT = Prompt(messages=(Message("user", "Which?"),))


def thinking_model(model: Path, folder: Path) -> Path:
    """The model with a template that opens the thinking, or closes an empty one if it is turned off."""
    shutil.copytree(model, folder)
    (folder / "chat_template.jinja").write_text(
        CHAT + "{% if add_generation_prompt %}{% if enable_thinking is defined and not enable_thinking %}"
        "<think></think>{% else %}<think>\n{% endif %}{% endif %}"
    )
    return folder


def test_a_mode_that_contradicts_the_judge_is_refused_before_the_run(
    roomy_model: Path, tmp_path: Path
) -> None:
    """JudgeLRM's turn begins with `<think>`, and the recipe for Qwen2.5 turns the thinking off."""
    model = thinking_model(roomy_model, tmp_path / "base")
    words = ["--recipe", "judgelrm-7b", "--model", str(model), "--data", str(rows(tmp_path))]
    result = train(*words, "--output", str(tmp_path / "run"), code=2)
    assert "the judge's turn begins with <think>, but the chat template closes the thinking" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("limit", ["100", ""])
def test_a_model_without_a_chat_template_is_refused_before_the_run(
    limit: str, roomy_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "base"
    shutil.copytree(roomy_model, model, ignore=shutil.ignore_patterns("chat_template.jinja"))
    words = ["--recipe", "judgelrm-7b", "--model", str(model), "--data", str(rows(tmp_path))]
    words += ["--set", f"data.max_prompt_tokens={limit}", "--set", "rl.generator=transformers"]
    result = train(*words, "--output", str(tmp_path / "run"), code=2)
    assert result.stderr.endswith(f"model.base: {model}: the tokenizer has no chat template\n")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_recipe_s_thinking_mode_reaches_the_rollouts_and_the_model_folder(
    roomy_model: Path, tmp_path: Path
) -> None:
    model = thinking_model(roomy_model, tmp_path / "base")
    words = ["--recipe", "rm-r1-distilled-7b", "--model", str(model), "--data", str(rows(tmp_path))]
    for assignment in (*ONE_BATCH, "model.enable_thinking=false"):
        words += ["--set", assignment]
    result = train(*words, "--output", str(tmp_path / "run"), code=0)
    trained = Path(result.stdout.strip())
    seen = {"rm-r1": {"style": "reasoning", "variant": "released"}}
    assert read_note(str(trained)) == ModelNote(enable_thinking=False, formats=seen)
    episodes = read_lines(tmp_path / "run" / "rl" / "episodes.jsonl")
    found = {one["prefill"] for episode in episodes for one in episode["trajectories"]}
    assert found == {""}

    # Judging with the folder uses the same prompts, unless the caller says otherwise.
    async def opening(**options: Any) -> str:
        config = JudgeOptions(model=str(trained), format="rm-r1", tools=False, **options)
        async with JudgeEngine(config) as engine:
            return engine.rollout("rm-r1")._generator.encoder.opening(PROMPT)

    assert asyncio.run(opening()) == ""
    assert asyncio.run(opening(enable_thinking=True)) == "<think>\n"


@pytest.fixture(scope="module")
def smol() -> tuple[Recipe, RowData]:
    recipe = load(Recipe, "smol")
    return recipe, RowData(recipe.data, recipe.environments)


@pytest.mark.slow
def test_the_embedded_judge_has_the_note_of_its_recipe(smol: tuple[Recipe, RowData]) -> None:
    note = context(*smol, Path(), print).note
    assert note["formats"].keys() == {"tir-pairwise", "tir-listwise", "tir-pointwise"}
    embedded = read_note(embedded_model()).model_dump(mode="json")
    assert {key: embedded[key] for key in note} == note


def test_a_note_leaves_out_the_options_of_the_reward(tmp_path: Path) -> None:
    """JudgeLRM's options other than the order are the reward's."""
    terms = "environments.judgelrm.options.terms=relation-only"
    recipe = load(Recipe, "judgelrm-7b", [f"data.train={rows(tmp_path)}", "data.max_prompt_tokens=", terms])
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"base": embedded_model()})})
    note = context(recipe, RowData(recipe.data, recipe.environments), Path(), print).note
    assert note["formats"] == {"judgelrm-pair": {}}


@pytest.mark.slow
def test_a_note_names_the_tools_of_the_training(smol: tuple[Recipe, RowData]) -> None:
    recipe, data = smol
    tools = recipe.rl.model_copy(update={"tools": ToolSettings(servers=("tests",))})
    assert "tools" not in context(recipe, data, Path(), print).note
    note = context(recipe.model_copy(update={"rl": tools}), data, Path(), print).note
    assert ModelNote.model_validate(note).tools == ("tests",)
