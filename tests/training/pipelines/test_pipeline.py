"""The stages of a recipe, their order, and the models that they start from."""

from __future__ import annotations

from typing import Any

import pytest

from tirjudge_training.config_files import BadRecipe, load
from tirjudge_training.pipelines.pipeline import Pipeline
from tirjudge_training.recipe import Recipe
from tirjudge_training.run import pipeline_of


def pipeline(*assignments: str) -> Pipeline:
    return pipeline_of(load(Recipe, "mini", assignments))


def names(pipeline: Pipeline) -> list[str]:
    return [stage.name for stage in pipeline.stages]


def stage(pipeline: Pipeline, name: str) -> Any:
    return next(stage for stage in pipeline.stages if stage.name == name)


def test_rl_alone_starts_with_a_warm_up_only_for_the_miniature() -> None:
    assert names(pipeline()) == ["warmup", "heldout-base", "rl", "heldout-rl"]
    assert names(pipeline("model.base=somewhere")) == ["heldout-base", "rl", "heldout-rl"]
    assert stage(pipeline("model.base=somewhere"), "rl").start is None


def test_rl_alone_ends_with_its_last_weights_or_with_its_best_checkpoint() -> None:
    last, best = pipeline(), pipeline("validation.select=true")
    assert (last.result, list(last.models.values())) == ("rl", ["warmup", "rl"])
    assert names(best) == ["warmup", "heldout-base", "rl", "select", "heldout-rl"]
    assert (best.result, list(best.models.values())) == ("select", ["warmup", "select"])
    assert stage(best, "select").stage == "rl"


def test_two_rounds_as_in_the_paper() -> None:
    """RL, then two rounds: sampling with the last model, SFT of the initial one, and RL from there."""
    found = pipeline("method=iterative")
    assert [name for name in names(found) if not name.startswith("heldout-")] == [
        *("warmup", "rl-0", "select-0"),
        *("rejection-1", "sft-1", "rl-1", "select-1"),
        *("rejection-2", "sft-2", "rl-2", "select-2"),
    ]
    for number in (1, 2):
        assert stage(found, f"rejection-{number}").start == f"select-{number - 1}"
        sft = stage(found, f"sft-{number}")
        assert (sft.start, sft.samples) == ("warmup", (f"rejection-{number}",))
        assert stage(found, f"rl-{number}").start == f"sft-{number}"
        assert stage(found, f"select-{number}").stage == f"rl-{number}"
    assert found.result == "select-2"
    assert list(found.models.values()) == ["warmup", "select-0", "sft-1", "select-1", "sft-2", "select-2"]


def test_the_paper_samples_four_and_keeps_the_shortest() -> None:
    sampling = stage(pipeline("method=iterative"), "rejection-1")
    assert (sampling.config.samples, sampling.config.keep, sampling.config.reward) == (4, "shortest", 1.0)
    assert sampling.rollout.temperature == 1.0


def test_the_control_has_as_many_steps_of_rl_as_the_rounds_and_an_arm_without_rl() -> None:
    found = pipeline("method=iterative", "iterate.control=true", "iterate.rounds=3")
    rounds = [stage(found, f"rl-{number}").config.steps for number in (1, 2, 3)]
    control = stage(found, "rl-continued")
    assert control.config.steps == sum(rounds)
    assert control.start == "select-0"
    assert stage(found, "rejection-only").start == stage(found, "sft-only").start == "warmup"
    assert found.result == "select-3"


def test_rejection_sampling_alone_teaches_a_model_its_own_right_answers() -> None:
    found = pipeline("method=rejection")
    assert names(found) == ["warmup", "heldout-base", "rejection", "sft", "heldout-sft"]
    sft = stage(found, "sft")
    assert (stage(found, "rejection").start, sft.start, sft.samples) == ("warmup", "warmup", ("rejection",))
    assert (found.result, list(found.models.values())) == ("sft", ["warmup", "sft"])


def test_no_two_stages_have_the_same_seed() -> None:
    found = pipeline("method=iterative", "iterate.control=true")
    drawing = [one for one in found.stages if one.name.startswith(("rl-", "rejection-", "sft-"))]
    assert len({one.seed for one in drawing}) == len(drawing)
    assert stage(found, "rl-1").seed != stage(pipeline("method=iterative", "seed=1"), "rl-1").seed


def test_a_warm_up_without_tools_has_the_same_size_and_only_text() -> None:
    tools, text = (stage(pipeline(*a), "warmup").config.corpus for a in ((), ("data.no_tools=1.0",)))
    assert text.samples == tools.samples
    assert (text.programs, text.readings, text.text_only) == (0, 0, 1.0)
    assert stage(pipeline("data.no_tools=0.5"), "warmup").config.corpus.text_only == 0.5


@pytest.mark.parametrize(
    ("assignments", "line"),
    [
        (("data.train=rows.jsonl",), "data.train needs model.base"),
        (("data.heldout=rows.jsonl",), "are for rows of your own"),
        (("method=iterative", "rejection.prompts="), "rejection.prompts"),
        (("method=rejection", "rejection.prompts="), "rejection.prompts"),
        (
            ("method=itrative",),
            "no training method 'itrative'; "
            "there are answers, demonstrations, distill, iterative, rejection, rl",
        ),
        (("method=answers",), "method answers needs labelled rows of your own"),
        (("data.reserved=5",), "are for rows of your own"),
        (
            ("data.train=r.jsonl", "model.base=m", "data.reserved=5"),
            "this method does not use: method must be distill or answers",
        ),
        (("data.no_tools=2",), "data.no_tools: Input should be less than or equal to 1"),
    ],
)
def test_a_contradictory_recipe_is_refused_before_anything_starts(
    assignments: tuple[str, ...], line: str
) -> None:
    with pytest.raises(BadRecipe) as error:
        pipeline(*assignments)
    assert line in str(error.value)
    assert "\n" not in str(error.value)
