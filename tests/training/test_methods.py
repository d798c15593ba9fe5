"""The stages of each method, their order and the models they start from; a method of another package."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tirjudge_environments import derive_seed
from tirjudge_training.data.base import open_judges
from tirjudge_training.methods import Pipeline, pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load
from tirjudge_training.run import preflight
from tirjudge_training.run.plan import NoRows


def pipeline(*assignments: str) -> Pipeline:
    return pipeline_of(load(Recipe, "smol", assignments))


def names(pipeline: Pipeline) -> list[str]:
    return [stage.name for stage in pipeline.stages]


def stage(pipeline: Pipeline, name: str) -> Any:
    return next(stage for stage in pipeline.stages if stage.name == name)


def test_a_warm_up_on_demonstrations_comes_before_the_method() -> None:
    last = pipeline("validation.select=false")
    assert names(last) == ["demonstrations", "warmup", "heldout-warmup", "rl", "heldout-rl"]
    alone = pipeline("validation.select=false", "data.demonstrations=")
    assert names(alone) == ["heldout-base", "rl", "heldout-rl"]
    assert stage(alone, "rl").start is None


def test_rl_alone_ends_with_its_last_weights_or_with_its_best_checkpoint() -> None:
    last, best = pipeline("validation.select=false"), pipeline()
    assert (last.result, list(last.models.values())) == ("rl", ["warmup", "rl"])
    assert names(best)[-3:] == ["rl", "select", "heldout-rl"]
    assert (best.result, list(best.models.values())) == ("select", ["warmup", "select"])
    assert stage(best, "select").stage == "rl"


def test_two_rounds_as_in_the_paper() -> None:
    """RL, then two rounds: sampling with the last model, SFT of the initial one, and RL from there."""
    found = pipeline("method=iterative")
    assert [name for name in names(found) if not name.startswith("heldout-")] == [
        *("demonstrations", "warmup", "rl-0", "select-0"),
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


def test_the_control_has_as_many_steps_of_rl_as_the_rounds_and_an_arm_without_rl() -> None:
    found = pipeline("method=iterative", "iterate.control=true", "iterate.rounds=3")
    rounds = [stage(found, f"rl-{number}").config.steps for number in (1, 2, 3)]
    control = stage(found, "rl-continued")
    assert control.config.steps == sum(rounds)
    assert control.start == "select-0"
    assert stage(found, "rejection-only").start == stage(found, "sft-only").start == "warmup"
    assert found.result == "select-3"


def test_rows_limit_epochs_that_are_not_counted_yet() -> None:
    limits = ("rl.steps=0", "rl.epochs=1", "rl.rows=100", "iterate.steps=4")
    found = pipeline("method=iterative", *limits)
    assert [stage(found, name).config.rows for name in ("rl-0", "rl-1")] == [100, 100]


def test_rejection_sampling_alone_teaches_a_model_its_own_right_answers() -> None:
    found = pipeline("method=rejection")
    assert names(found)[1:] == ["warmup", "heldout-warmup", "rejection", "sft", "heldout-sft"]
    sft = stage(found, "sft")
    assert (stage(found, "rejection").start, sft.start, sft.samples) == ("warmup", "warmup", ("rejection",))
    assert (found.result, list(found.models.values())) == ("sft", ["warmup", "sft"])


def test_the_first_of_several_rounds_draws_as_when_its_folders_had_a_number() -> None:
    """The rounds of `iterative` have always had their numbers; one round of `rejection` has never had one."""
    numbered, one = pipeline("method=iterative"), pipeline("method=rejection")
    several = pipeline("method=rejection", "rejection.rounds=2")
    for name in ("rejection", "sft"):
        seeds = [stage(several, name).seed, stage(several, f"{name}-2").seed]
        assert seeds == [stage(numbered, f"{name}-{number}").seed for number in (1, 2)]
        assert stage(one, name).seed == derive_seed("stage", name, 0)
    assert stage(several, "sft").drawn == stage(several, "rejection").seed


def test_no_two_stages_have_the_same_seed() -> None:
    found = pipeline("method=iterative", "iterate.control=true")
    drawing = [one for one in found.stages if one.name.startswith(("rl-", "rejection-", "sft-"))]
    assert len({one.seed for one in drawing}) == len(drawing)
    assert stage(found, "rl-1").seed != stage(pipeline("method=iterative", "seed=1"), "rl-1").seed


@pytest.mark.parametrize(
    ("assignments", "line"),
    [
        (("data.train=",), "data.train"),
        (("method=itrative",), "no training method 'itrative'"),
        (("data.reserved=5",), "this method does not use: method must be distill or answers"),
        (("meta_judge.model=m", "meta_judge.base_url=localhost:1/v1"), "meta_judge: the base URL must be"),
        (("meta_judge.model=m", "meta_judge.base_url=http://u:p@h/v1"), "meta_judge: the base URL must be"),
        (("warmup.sft.schedule=cosin",), "warmup.sft.schedule: Input should be 'linear', 'cosine', "),
    ],
)
def test_a_contradictory_recipe_is_refused_before_anything_starts(
    assignments: tuple[str, ...], line: str
) -> None:
    with pytest.raises(BadRecipe) as error:
        pipeline(*assignments)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_tools_for_a_judge_that_can_call_none_are_refused_before_anything_starts() -> None:
    for recipe in ("judgelrm-7b", "smol"):
        config = load(Recipe, recipe, ['rl.tools.servers=["tests"]'])
        _, judges = open_judges(config.environments, 0.0)
        refused = pytest.raises(BadRecipe, match="the judge judgelrm can call no tools")
        with refused if recipe == "judgelrm-7b" else nullcontext():
            preflight._check_tools(config, SimpleNamespace(environments=judges))


def test_a_reward_without_the_model_that_it_asks_is_refused_before_anything_starts() -> None:
    outcome = "environments.rationale.options.reward=outcome"
    for words in (("meta_judge=",), ("meta_judge=", outcome), ()):
        config = load(Recipe, "rationale-14b", words)
        _, judges = open_judges(config.environments, 0.0)
        refused = pytest.raises(BadRecipe, match="meta_judge: the reward of the judge rationale asks")
        with refused if words == ("meta_judge=",) else nullcontext():
            preflight._check_meta_judge(config, SimpleNamespace(environments=judges))


def test_batches_that_the_processes_cannot_divide_are_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = ("warmup.sft.batch=10", "warmup.sft.micro_batch=4", "rl.groups=8", "rl.samples=4")
    found, data = pipeline(*steps, "rl.optimizer_steps=1"), NoRows()
    with pytest.raises(ValueError, match="warmup: batch = 10 is not a multiple of micro_batch"):
        stage(found, "warmup").check(data)
    stage(found, "rl").check(data)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=r"rl: groups \* samples = 32 is not a multiple"):
        stage(found, "rl").check(data)
    verl = stage(found, "rl").config.model_copy(update={"trainer": "verl"})
    stage(found, "rl").model_copy(update={"config": verl}).check(data)


def test_the_public_names_load_without_torch() -> None:
    program = (
        "import sys; from tirjudge_training import JudgeRolloutFunc, Recipe, train; "
        "assert Recipe.load('smol', ['rl.steps=3']).rl.steps == 3; print({'torch', 'trl'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
