"""Which tasks a run of the miniature draws."""

from __future__ import annotations

from collections import Counter

import pytest

from tirjudge_environments.constraints import FAMILIES
from tirjudge_training.data.base import DataConfig
from tirjudge_training.miniature.synthesis import CANDIDATES, held_back, task
from tirjudge_training.miniature.tasks import GeneratedData


def test_a_draw_depends_on_nothing_but_its_place_and_the_seed() -> None:
    """Hence a resumed run draws what an uninterrupted one does."""
    data = GeneratedData(DataConfig())
    assert data.source(4, seed=0)(2, 1, 3) == GeneratedData(DataConfig()).source(4, seed=0)(2, 1, 3)
    assert data.source(4, seed=0)(2, 1, 3) != data.source(4, seed=1)(2, 1, 3)


def test_batches_and_replacements_share_no_task() -> None:
    deal = GeneratedData(DataConfig()).source(4, seed=0)
    drawn = [
        deal(step, turn, position).task.id for step in range(5) for turn in range(3) for position in range(4)
    ]
    assert len(set(drawn)) == len(drawn)


def test_validation_prompts_are_in_no_training_draw() -> None:
    """5 % of the prompts of the training half, of every family; the reported ones are of the other half."""
    data = GeneratedData(DataConfig())
    back = {draw.task.prompt for draw in data.validation(60)}
    deal = data.source(500, seed=3)
    trained = [deal(0, turn, position).task for turn in range(2) for position in range(2000)]
    trained += [draw.task for draw in data.prompts(1000, 4)]
    assert not back & {task.prompt for task in trained}
    assert {d.task.gold["family"] for d in data.validation(60)} == set(FAMILIES)
    assert not back & {draw.task.prompt for draw in data.heldout(300, 0)}
    assert sum(held_back(task("train", "tir-pairwise", i, 9)) for i in range(4000)) / 4000 == pytest.approx(
        0.05, abs=0.02
    )


def test_weights_choose_formats_and_domains() -> None:
    config = DataConfig(weights={"safety": 3, "helpfulness": 0}, formats={"tir-listwise": 5})
    drawn = GeneratedData(config).prompts(2000, 0)
    domains = Counter(draw.task.domain for draw in drawn)
    formats = Counter(draw.format for draw in drawn)
    assert domains["helpfulness"] == 0
    assert domains["safety"] / 2000 == pytest.approx(3 / 26, abs=0.03), "one family of 25 counts three times"
    assert formats["tir-listwise"] / 2000 == pytest.approx(0.5, abs=0.04)


def test_the_text_only_control_has_the_same_tasks() -> None:
    tools, text = (GeneratedData(DataConfig(no_tools=share)).prompts(50, 1) for share in (0.0, 1.0))
    assert [draw.task for draw in tools] == [draw.task for draw in text]
    assert {draw.format for draw in text} <= {f"{name}-no-tools" for name in CANDIDATES}
