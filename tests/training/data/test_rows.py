"""A user's rows are split by prompt, assigned to judges and sampled in passes; bad rows are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judge_command import write_rows as write
from tirjudge_training.data.base import DataConfig, EnvironmentConfig, prompt_seed
from tirjudge_training.data.own_rows import ExpectedRows, RowData
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.run.context import data_of

JUDGES = {name: EnvironmentConfig(name=f"tir-{name}") for name in ("pairwise", "pointwise", "listwise")}
PAIRS = {"pairs": EnvironmentConfig(name="tir-pairwise")}


def row(number: int, prompt: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": f"r{number}", "prompt": prompt or f"p{number}", "chosen": "a", "rejected": "b", **more}


def opened(path: Path, judges: dict[str, EnvironmentConfig] = PAIRS, **config: Any) -> RowData:
    return RowData(DataConfig(train=path, **config), judges)


def sampled_ids(data: RowData, steps: int, groups: int, seed: int = 0, start: int = 0) -> list[list[str]]:
    """Return the rows of batches that fill `groups` slots with a row each, from a place in the stream on."""
    rows = data.source(seed)
    rows.go_to({"next": start, "deferred": []})
    batches = []
    for _ in range(steps):
        batch = [rows(position) for position in range(groups)]
        rows.draw(range(groups))
        batches.append([formatted.task.id for formatted in batch if formatted is not None])
    return batches


def ids(tasks: Sequence[FormattedTask]) -> set[str]:
    return {formatted.task.id for formatted in tasks}


def test_validation_is_a_share_of_the_prompts_of_every_domain_and_is_never_trained_on(tmp_path: Path) -> None:
    """Each prompt has two rows, which are on the same side."""
    rows = [
        row(2 * number + copy, f"{domain} {number}", domain=domain)
        for domain, start in (("math", 0), ("chat", 1000))
        for number in range(start, start + 100)
        for copy in range(2)
    ]
    data = opened(write(tmp_path / "rows.jsonl", rows))
    validation, training = data.validation(1000), data.prompts(None, 0)
    assert Counter(formatted.task.domain for formatted in validation) == {"math": 10, "chat": 10}
    assert len(training) == 380
    assert not {prompt_seed(d.task) for d in validation} & {prompt_seed(d.task) for d in training}
    reordered = opened(write(tmp_path / "other.jsonl", rows[::-1]))
    assert ids(reordered.validation(1000)) == ids(validation), (
        "the split must not depend on the order of the rows"
    )


def test_a_prompt_held_back_for_one_judge_is_held_back_for_all(tmp_path: Path) -> None:
    rows = [row(n, environment="pairwise") for n in range(40)]
    rows += [row(n + 100, f"p{n}", environment="pointwise") for n in range(40)]
    data = opened(write(tmp_path / "rows.jsonl", rows), JUDGES)
    held = {prompt_seed(formatted.task) for formatted in data.validation(1000)}
    assert held
    assert all(prompt_seed(formatted.task) not in held for formatted in data.prompts(None, 0))
    assert len(data.prompts(None, 0)) == 80 - 2 * len(held)


@pytest.mark.parametrize("option", [{"families": ("words",)}, {"without_families": ("commas",)}])
def test_families_that_are_left_out_choose_no_checkpoint_either(
    tmp_path: Path, option: dict[str, Any]
) -> None:
    rows = [row(n, families=["words"] if n % 2 else ["words", "commas"]) for n in range(200)]
    file = write(tmp_path / "rows.jsonl", rows)
    held, of_all = ids(opened(file, **option).validation(1000)), ids(opened(file).validation(1000))
    assert held == {name for name in of_all if int(name[1:]) % 2}
    assert 0 < len(held) < len(of_all)


@pytest.mark.parametrize("own_file", [False, True])
def test_a_prompt_of_the_held_out_file_chooses_no_checkpoint(tmp_path: Path, own_file: bool) -> None:
    train = write(tmp_path / "rows.jsonl", [row(n) for n in range(20)])
    heldout = write(tmp_path / "test.jsonl", [row(n) for n in range(10)])
    choosing = write(tmp_path / "choice.jsonl", [row(n) for n in range(8, 12)])
    data = opened(train, heldout=heldout, validation=choosing if own_file else 0.5)
    chosen = ids(data.validation(100))
    assert len(chosen) == (2 if own_file else 5)
    assert not chosen & ids(data.heldout(100, 0))
    assert not chosen & ids(data.prompts(None, 0))


def test_every_pass_has_each_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    data = opened(write(tmp_path / "rows.jsonl", [row(n) for n in range(26)]))
    training = ids(data.prompts(None, 0))
    assert len(training) == 25
    passes = sampled_ids(data, steps=10, groups=5)
    first, second = ([name for batch in half for name in batch] for half in (passes[:5], passes[5:]))
    assert set(first) == set(second) == training
    assert first != second
    assert sampled_ids(data, 10, 5) == passes != sampled_ids(data, 10, 5, seed=1)


def test_replacements_come_from_further_along_the_pass(tmp_path: Path) -> None:
    """A row that replaced another is not drawn again by a later batch of the same pass."""
    data = opened(write(tmp_path / "rows.jsonl", [row(n) for n in range(100)]))
    rows = data.source(0)
    found = []
    for groups in (8, 5, 2) * 6 + (5,):  # Batches of eight, each with two rounds of replacements.
        found += [one.task.id for position in range(groups) if (one := rows(position)) is not None]
        rows.draw(range(groups))
    assert len(found) == 95
    assert set(found) == ids(data.prompts(None, 0))


def test_views_count_as_slots_so_a_pass_of_single_responses_takes_more_batches(tmp_path: Path) -> None:
    judge = {"single": EnvironmentConfig(name="tir-pointwise")}
    data = opened(write(tmp_path / "rows.jsonl", [row(n) for n in range(21)]), judge)
    assert data.steps(4, 1) == (10, 20)


def test_rows_are_assigned_by_weight_to_judges_that_accept_them(tmp_path: Path) -> None:
    rows = [row(n) for n in range(400)]
    rows += [row(n, rejected=["b", "c"]) for n in range(400, 420)] + [row(500, environment="pointwise")]
    data = opened(write(tmp_path / "rows.jsonl", rows), JUDGES, formats={"pairwise": 3, "listwise": 0.001})
    found = [*data.prompts(None, 0), *data.validation(1000)]
    of = {formatted.task.id: formatted.format for formatted in found}
    pairs = Counter(of[f"r{n}"] for n in range(400))
    assert set(pairs) == {"pairwise", "pointwise"}
    assert pairs["pairwise"] == pytest.approx(300, abs=30)
    assert {of[f"r{n}"] for n in range(400, 420)} <= {"listwise", "pointwise"}
    assert of["r500"] == "pointwise"


def test_weights_by_domain_repeat_rows_or_leave_them_out(tmp_path: Path) -> None:
    rows = [row(n, domain=("math", "chat", "code")[n % 3]) for n in range(600)]
    data = opened(write(tmp_path / "rows.jsonl", rows), weights={"math": 2.5, "chat": 0})
    _, rows = data.steps(1, 1)
    rows_of_a_pass = data.source(0, rows)
    whole = Counter(one.task.domain for place in range(rows) if (one := rows_of_a_pass(place)) is not None)
    assert set(whole) == {"math", "code"}
    assert whole["math"] / whole["code"] == pytest.approx(2.5, abs=0.25)
    assert all(count == 1 for count in Counter(d.task.id for d in data.prompts(None, 0)).values())


def test_a_share_of_the_tasks_has_no_tools(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row(n) for n in range(400)])
    none, half, all_ = (opened(path, no_tools=share) for share in (0.0, 0.5, 1.0))
    assert set(none.environments) == {"pairs"}
    assert set(all_.environments) == {"pairs-no-tools"}
    counts = Counter(formatted.format for formatted in half.prompts(None, 0))
    assert counts["pairs"] == pytest.approx(190, abs=40)
    task = none.prompts(1, 0)[0].task
    judge = all_.environments["pairs-no-tools"]
    assert judge.prompt(task, judge.views(task)[0]).stop == ()
    assert {d.format for d in half.validation(5)} == set(half.environments), (
        "each task is measured with and without tools"
    )


def test_reserved_rows_are_only_used_by_the_teacher(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [row(n, domain="left out" if n < 9 else "") for n in range(60)])
    data = opened(path, reserved=20, weights={"left out": 0})
    reserved = ids(data.prompts(None, 0))
    assert len(reserved) == 20
    assert ids(data.prompts(None, 7)) == reserved, "the seed must not matter"
    trained = {name for batch in sampled_ids(data, steps=10, groups=10) for name in batch}
    held = {formatted.task.id for formatted in data.validation(100) if not formatted.task.domain}
    assert len(trained | reserved | held) == 60 - 9
    assert not reserved & (trained | held)
    assert not trained & held
    with pytest.raises(ValueError, match="no rows are left to train on"):
        opened(path, reserved=60)


def test_missing_rows_are_reported_before_a_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "j1" / "work").mkdir(parents=True)  # left by an interrupted build
    recipe = load(Recipe, "j1-8b", ["data.train=data/j1", "model.base=/nowhere"])
    with pytest.raises(FileNotFoundError, match="`tirjudge data build j1` makes them"):
        data_of(recipe)


def test_rows_with_equal_gold_scores_are_used(tmp_path: Path) -> None:
    judges = {"scores": EnvironmentConfig(name="judgelrm-pair")}
    tie = {"prompt": "p", "responses": ["a", "b"], "score": [7, 7]}
    rows = [tie, {**tie, "prompt": "q", "score": [8, 3]}]
    path = write(tmp_path / "rows.jsonl", rows)
    data = opened(path, judges, columns={"gold_scores": "score"})
    tasks = [*data.prompts(None, 0), *data.validation(2)]
    assert {(formatted.task.label, formatted.task.gold["scores"]) for formatted in tasks} == {
        (None, (7.0, 7.0)),
        (0, (8.0, 3.0)),
    }
    with pytest.raises(ValueError, match="no label"):
        opened(path, judges)


def test_expected_rows_hold_the_same_share_back_to_measure_the_judge(tmp_path: Path) -> None:
    config = DataConfig(train=tmp_path / "none.jsonl", heldout=0.2, validation=0.1)
    data = ExpectedRows(
        config, {"tir-pairwise": EnvironmentConfig(name="tir-pairwise")}, {"tir-pairwise": 50}
    )
    assert len(data.heldout(1000, 0)) == 10
    assert len(data.validation(1000)) == 4
    assert len(data.prompts(None, 0)) == 36
