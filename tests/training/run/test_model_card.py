"""The model card of a miniature describes its training stage by stage, for each method."""

from __future__ import annotations

from typing import Any

import pytest

from tirjudge_training.heldout import Answer, summary
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.run.model_card import model_card

MEASURED = summary(
    Answer("tir-pairwise", "lines", "", n > 0, 1.0, verdicts=2, views=2, calls=2, ran=2, errors=n == 0)
    for n in range(4)
)
RESULTS: dict[str, Any] = {
    "warmup": {"samples": 48_000},
    "rl": {"steps": 70, "seconds": 790.4, "cpu_seconds": 805.2},
    "select": {"best": 60, "n": 100, "correct": {"60": 97, "70": 97}},
    "rejection": {
        "tir-pairwise": {"prompts": 2000, "kept": 1900},
        "tir-listwise": {"prompts": 500, "kept": 400},
    },
    "sft": {"samples": 4200, "too_long": 0},
    "teacher": {"asked": 9, "dialogues": 5000, "prompts_with_full_reward": 9},
    "lessons": {"prompts": 2500, "samples": 2100},
    "heldout": MEASURED,
}
TEACHER = ("teacher.model=some-teacher", "teacher.base_url=http://localhost:1/v1")


def card(*assignments: str) -> str:
    recipe = Recipe.load("mini", assignments)
    pipeline = pipeline_of(recipe)
    results = {stage.name: RESULTS[stage.name.partition("-")[0]] for stage in pipeline.stages}
    return model_card(recipe, "tirjudge train --recipe mini", pipeline, results)


def test_a_card_has_every_stage_with_its_numbers() -> None:
    found = card()
    assert "with seed 0: a supervised warm-up, then RL. RL trains with the loss `dapo`;" in found
    assert "\n* `warmup`: a supervised warm-up on 48,000 generated samples\n" in found
    assert (
        "\n* `rl`: RL for 70 batches of 32 x 8 rollouts, in 805 CPU seconds, programs included (790 s"
        in found
    )
    assert "no other model's output is in the training data" in found
    assert "| tir-pairwise | 75.0% " in found
    assert "\n\n\n" not in found


def test_a_card_of_the_iterative_method_leaves_out_the_controls() -> None:
    found = card("method=iterative", "iterate.control=true")
    assert "then RL and 2 rounds of rejection sampling, SFT of the warm-up's model, and RL." in found
    assert "* `rejection-1`: rejection sampling, which kept a trajectory for 2,300 of 2,500 prompts" in found
    assert "* `sft-2`: SFT on 4,200 samples" in found
    assert "* `select-2`: the weights of step 60, with 97 of 100 validation tasks right" in found
    assert "rl-continued" not in found


def test_a_card_without_rl_names_no_loss() -> None:
    found = card("method=rejection", "rejection.prompts=2500")
    assert "then rejection sampling from its own model and SFT. Every program ran in the sandbox" in found
    assert "* `rejection`: rejection sampling, which kept a trajectory for 2,300 of 2,500 prompts" in found
    assert "dapo" not in found


def test_a_card_of_distillation_names_the_teacher() -> None:
    found = card("method=distill", *TEACHER)
    assert "2,100 dialogues of the SFT are some-teacher's" in found
    assert "* `teacher`: 5,000 dialogues with some-teacher" in found
    assert "* `lessons`: 2,100 samples from the dialogues of some-teacher" in found
    assert "no other model's output" not in found


@pytest.mark.parametrize("name", ["rl", "sft"])
def test_a_measurement_has_no_line_of_its_own(name: str) -> None:
    assert f"`heldout-{name}`" not in card("method=distill", *TEACHER)
