"""Answer-only training learns the letter of the right response, and nothing of the prompt."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import Result

from tests.training.train_command import train
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import ChatEncoder, open_environment
from tirjudge_environments.tasks import read_task
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load
from tirjudge_training.run.context import data_of
from tirjudge_training.run.preflight import check
from tirjudge_training.sft import IGNORED

RECIPE = "ablations/rm-r1-instruct-32b-answer-only"
LABELS = ["A", "B", "tie", "B", "A", "B", "A", "B"]


def rows(folder: Path) -> Path:
    """Write pairs, one of them a tie, from which this judge cannot learn."""
    lines = (
        {"id": f"r{n}", "prompt": f"q{n}", "responses": ["x", "y"], "label": label, "checklist": []}
        for n, label in enumerate(LABELS)
    )
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(folder: Path, model: Path, *settings: str) -> Result:
    words = ["--recipe", RECIPE, "--model", str(model), "--data", str(rows(folder))]
    for setting in ("data.max_prompt_tokens=8000", "sft.batch=2", *settings):
        words += ["--set", setting]
    return train(*words, "--output", str(folder / "run"))


@pytest.mark.slow
def test_the_right_letter_is_learned_in_the_order_shown(roomy_model: Path, tmp_path: Path) -> None:
    done = run(tmp_path, roomy_model, "sft.learning_rate=1e-2", "sft.epochs=4")
    assert done.exit_code == 0, done.stderr
    model = tmp_path / "run" / "sft" / "model"
    assert done.stdout.strip() == str(model)
    AutoModelForCausalLM.from_pretrained(model)
    encoder = ChatEncoder(tokenizer := AutoTokenizer.from_pretrained(roomy_model))
    judge = open_environment("rm-r1", style="answer-only")
    tasks = {row["id"]: read_task(row, default_id="") for row in read_lines(tmp_path / "rows.jsonl")}
    written = list(read_lines(tmp_path / "run" / "answers" / "samples.jsonl"))
    taught = set()
    for one in written:
        task = tasks[one["id"]]
        for sample in one["kept"]:
            [view] = judge.views(task)
            prompt = encoder.prompt(judge.prompt(task, view))
            letter = "AB"[view.order.index(task.label)]
            answer = [*encoder.text(letter), tokenizer.eos_token_id]
            assert sample["ids"] == [*prompt, *answer]
            assert sample["labels"] == [IGNORED] * len(prompt) + answer
            taught.add((view.name, letter))
    assert len(taught) > 2, "both letters must occur, in either order"
    assert len(written) == len(LABELS) - 1, "one prompt is held back"
    losses = [row["loss"] for row in read_lines(tmp_path / "run" / "sft" / "metrics.jsonl")]
    assert losses[-1] < losses[0]


def test_a_recipe_without_rollouts_needs_no_sandbox(
    roomy_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method `answers` runs no program unless it is measured, so that no engine has to be there."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    keys = [f"model.base={roomy_model}", f"data.train={rows(tmp_path)}", "rl.sandbox=docker"]
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text((tmp_path / "rows.jsonl").read_text().replace('"q', '"another q'))
    for more, refused in (([], False), ([f"data.heldout={heldout}"], True)):
        recipe = load(Recipe, RECIPE, [*keys, *more])
        with pytest.raises(BadRecipe, match=r"rl\.sandbox: no container") if refused else nullcontext():
            check(recipe, pipeline_of(recipe), data_of(recipe), tmp_path)
