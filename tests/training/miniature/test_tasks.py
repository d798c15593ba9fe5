"""The tasks of a run of the miniature are reproducible, and splits and weights are kept."""

from __future__ import annotations

from collections import Counter

import pytest

from tirjudge_environments.constraints import FAMILIES
from tirjudge_training.data.base import DataConfig
from tirjudge_training.miniature.synthesis import CANDIDATES, held_back, task
from tirjudge_training.miniature.tasks import GeneratedData


def test_a_task_depends_only_on_its_position_and_the_seed() -> None:
    """A resumed run therefore gets the tasks of an uninterrupted one."""
    data = GeneratedData(DataConfig())
    assert data.source(4, seed=0)(2, 1, 3) == GeneratedData(DataConfig()).source(4, seed=0)(2, 1, 3)
    assert data.source(4, seed=0)(2, 1, 3) != data.source(4, seed=1)(2, 1, 3)


def test_batches_and_replacements_share_no_task() -> None:
    sample_task = GeneratedData(DataConfig()).source(4, seed=0)
    sampled = [
        sample_task(step, round_number, position).task.id
        for step in range(5)
        for round_number in range(3)
        for position in range(4)
    ]
    assert len(set(sampled)) == len(sampled)


def test_validation_prompts_are_never_trained_on() -> None:
    """They are 5 % of the training half's prompts, in every family; held-out tasks are of the other half."""
    data = GeneratedData(DataConfig())
    back = {formatted.task.prompt for formatted in data.validation(60)}
    sample_task = data.source(500, seed=3)
    trained = [
        sample_task(0, round_number, position).task for round_number in range(2) for position in range(2000)
    ]
    trained += [formatted.task for formatted in data.prompts(1000, 4)]
    assert not back & {task.prompt for task in trained}
    assert {d.task.gold["family"] for d in data.validation(60)} == set(FAMILIES)
    assert not back & {formatted.task.prompt for formatted in data.heldout(300, 0)}
    assert sum(held_back(task("train", "tir-pairwise", i, 9)) for i in range(4000)) / 4000 == pytest.approx(
        0.05, abs=0.02
    )


def test_weights_choose_formats_and_domains() -> None:
    config = DataConfig(weights={"safety": 3, "helpfulness": 0}, formats={"tir-listwise": 5})
    sampled = GeneratedData(config).prompts(2000, 0)
    domains = Counter(formatted.task.domain for formatted in sampled)
    formats = Counter(formatted.format for formatted in sampled)
    assert domains["helpfulness"] == 0
    assert domains["safety"] / 2000 == pytest.approx(3 / 26, abs=0.03), "one family of 25 counts three times"
    assert formats["tir-listwise"] / 2000 == pytest.approx(0.5, abs=0.04)


def test_the_text_only_control_has_the_same_tasks() -> None:
    tools, text = (GeneratedData(DataConfig(no_tools=share)).prompts(50, 1) for share in (0.0, 1.0))
    assert [formatted.task for formatted in tools] == [formatted.task for formatted in text]
    assert {formatted.format for formatted in text} <= {f"{name}-no-tools" for name in CANDIDATES}
