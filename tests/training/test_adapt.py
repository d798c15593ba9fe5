"""`tirjudge train --data FILE`, which adapts the embedded judge to labels without naming a recipe."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.training.train_command import train
from tirjudge.cli.options import label_values
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.run.results import next_commands, say_gain

LABELS = Path(__file__).parents[2] / "examples" / "labels.jsonl"
STAGES = ["heldout-base", "rl", "select", "heldout-rl"]
WARM_UP = ["demonstrations", "heldout-base", "warmup", "heldout-warmup", *STAGES[1:]]


def rows(folder: Path, n: int = 30, **more: Any) -> Path:
    path = folder / "labels.jsonl"
    lines = [{"prompt": f"p{i}", "responses": ["a", "b"], "label": "AB"[i % 2], **more} for i in range(n)]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


def planned(*words: object) -> tuple[list[str], list[str]]:
    """Return the lines of a plan without a measurement, and the names of its stages."""
    done = train(*words, "--plan", "--set", "rates.measure=false", code=0)
    lines = done.stdout.splitlines()
    return lines, [line.split()[0] for line in lines[lines.index("") + 2 :] if "  " in line][:-1]


def test_labels_alone_are_trained_by_rl_and_measured_before_and_after(tmp_path: Path) -> None:
    lines, stages = planned("--data", rows(tmp_path))
    assert stages == STAGES
    assert lines[0].startswith("4 stages, from tirjudge-smol")
    assert lines[1] == (
        "30 rows of 30 prompts: 6 rows of 6 prompts held out to measure the judge, "
        "2 rows of 2 prompts held back to choose the step"
    )


@pytest.mark.slow
def test_rows_with_programs_begin_with_a_warm_up_on_them() -> None:
    lines, stages = planned("--data", LABELS)
    assert stages == WARM_UP
    assert any("6 demonstrated dialogues" in line for line in lines)


def test_the_recipe_that_data_stands_for_does_not_pay_guesses() -> None:
    recipe = load(Recipe, "adapt")
    assert recipe.model.base == "tirjudge-smol"
    for name in ("tir-pairwise", "tir-listwise"):
        assert recipe.environments[name].options["evidence"] == "required"
    assert isinstance(recipe.data.heldout, float), "never the rows that the package is measured on"
    assert [stage.name for stage in pipeline_of(recipe).stages] == WARM_UP


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"label": None}, "labels.jsonl:1: no label"),
        ({"label": "C"}, "labels.jsonl:1: label 'C' is no index"),
        ({"program": 7}, "labels.jsonl:1: program must be a text"),
        ({"prompt": "p", "id": "one"}, "labels.jsonl:2: a second row with the id 'one'"),
    ],
)
def test_a_bad_row_is_one_line_and_exit_code_2(tmp_path: Path, more: dict[str, Any], line: str) -> None:
    done = train("--data", rows(tmp_path, **more), "--output", tmp_path / "run", code=2)
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_missing_file_a_torn_one_and_too_few_rows_are_one_line_and_exit_code_2(tmp_path: Path) -> None:
    missing, torn = tmp_path / "none.jsonl", tmp_path / "torn.jsonl"
    torn.write_text("{\n")
    lines = {missing: "no rows at", torn: "torn.jsonl:1: not JSON", rows(tmp_path, 2): "at least 3 prompts"}
    for path, line in lines.items():
        done = train("--data", path, "--output", tmp_path / "run", code=2)
        assert line in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_plan_does_not_call_rows_missing_that_are_there(tmp_path: Path) -> None:
    done = train(
        "--data", rows(tmp_path), "--set", f"data.heldout={tmp_path / 'none.jsonl'}", "--plan", code=2
    )
    assert f"no rows at {tmp_path / 'none.jsonl'}" in done.stderr
    assert done.stdout == ""


def test_programs_that_all_contradict_the_label_end_the_run_before_a_model_is_loaded(
    roomy_model: Path, tmp_path: Path
) -> None:
    program = "for name, r in zip('AB', responses):\n    print(name, int(r == 'c'))"
    words = ("--data", rows(tmp_path, program=program), "--model", roomy_model, "--output", tmp_path / "run")
    done = train(*words, "--set", "data.max_prompt_tokens=", code=2)
    assert "22 did not tell the responses apart (first: row " in done.stderr
    assert not (tmp_path / "run" / "heldout-base").exists()


def test_the_plan_measures_this_machine(roomy_model: Path, tmp_path: Path) -> None:
    words = ("--data", rows(tmp_path), "--model", roomy_model, "--output", tmp_path / "run", "--plan")
    small = ("--set", "rl.max_tokens=16", "--set", "data.max_prompt_tokens=")
    done = train(*words, *small, code=0)
    prompt, response, sampled, trained = re.findall(
        r"measured just now with 8 rollouts: a trajectory has ([\d,]+) tokens of prompt and ([\d,]+) of "
        r"response; one device samples ([\d,]+) and trains ([\d,]+) tokens a second",
        done.stdout,
    )[0]
    assert int(response) <= 16
    assert int(prompt.replace(",", "")) > 200, "each byte of the prompt is a token"
    assert min(int(one.replace(",", "")) for one in (sampled, trained)) > 0
    assert not (tmp_path / "run").exists()


def test_a_plan_without_the_model_has_the_rates_of_the_recipe(tmp_path: Path) -> None:
    done = train("--data", rows(tmp_path), "--model", tmp_path / "none", "--plan", code=0)
    assert re.search(
        r"^not measured \(no model .*\), assumed \(\[rates\] in the recipe\): ", done.stdout, re.M
    )
    assert "samples 100 and trains 100 tokens a second" in done.stdout


def test_the_last_line_compares_the_same_tasks_before_and_after(tmp_path: Path) -> None:
    recipe = load(Recipe, "adapt", ["data.demonstrations="])
    measured(tmp_path, base=[True, False, False, False, None], rl=[False, True, True, True, True])
    said: list[str] = []
    say_gain(pipeline_of(recipe), tmp_path, said.append)
    # Agresti and Min: (3.5 - 1.5) / 6, plus and minus 1.96 times the root of (5 / 6 - 1 / 9) / 6.
    assert said == ["right in 4 held-out tasks: base 1, rl 3; +50.0 points [-34.7, 100.0]"]


def measured(folder: Path, **right: list[bool | None]) -> None:
    """Write the held-out answers of models."""
    for name, values in right.items():
        (folder / f"heldout-{name}").mkdir()
        answers = ({"id": f"r{i}", "format": "tir-pairwise", "correct": one} for i, one in enumerate(values))
        # Answers are stored as they arrive: those of the two models in other orders.
        lines = sorted((json.dumps(one) + "\n" for one in answers), reverse=name == "rl")
        (folder / f"heldout-{name}" / "answers.jsonl").write_text("".join(lines))


def test_the_last_line_is_about_the_result_and_not_about_a_control(tmp_path: Path) -> None:
    words = ["data.demonstrations=", "method=iterative", "iterate.control=true"]
    pipeline = pipeline_of(load(Recipe, "adapt", words))
    assert list(pipeline.models)[-2:] == ["rl-continued", "sft-only"]
    measured(tmp_path, **{"base": [False] * 4, "rl-2": [True] * 3 + [False], "sft-only": [False] * 4})
    said: list[str] = []
    say_gain(pipeline, tmp_path, said.append)
    assert [line.partition(";")[0] for line in said] == ["right in 4 held-out tasks: base 0, rl-2 3"]


@pytest.mark.parametrize(
    "labels", [{"first": "A", "second": "B"}, {"first, clearly": "A", "2": "B", 'a "tie"': "tie"}]
)
def test_the_commands_after_a_run_give_a_datasets_own_labels_their_meanings(labels: dict[str, str]) -> None:
    meanings = ", ".join(f"{json.dumps(value)} = {json.dumps(letter)}" for value, letter in labels.items())
    recipe = load(Recipe, "adapt", [f"data.train={LABELS}", f"data.labels={{{meanings}}}"])
    before, after, *_ = (shlex.split(one) for one in next_commands(recipe, Path("run"), Path("run/model")))
    for words in (before, after):
        assert label_values(words[words.index("--labels") + 1]) == labels


@pytest.mark.parametrize(("base", "words"), [("tirjudge-smol", []), ("smol", ["--format", "tir"])])
def test_a_base_without_a_note_is_asked_in_the_format_of_the_training(base: str, words: list[str]) -> None:
    recipe = load(Recipe, "adapt", [f"data.train={LABELS}", f"model.base={base}"])
    before, after, *_ = (shlex.split(one) for one in next_commands(recipe, Path("run"), Path("run/model")))
    assert before[before.index("--model") :] == ["--model", base, *words, "--output", "run/before.jsonl"]
    assert "--format" not in after
