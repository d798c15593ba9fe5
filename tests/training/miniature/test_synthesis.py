"""Generated tasks: right labels, the same draw for the same arguments, and nothing held out in training."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tirjudge_environments.constraints import FAMILIES, HELD_OUT, TRAIN
from tirjudge_training.miniature.synthesis import CANDIDATES, heldout_tasks, task, tasks, train_draw


@pytest.mark.parametrize("format", CANDIDATES)
def test_one_candidate_is_right_and_the_families_take_turns(format: str) -> None:
    drawn = heldout_tasks(format, 50, seed=3)
    assert [t.gold["family"] for t in drawn] == [*FAMILIES, *FAMILIES]
    assert {len(t.candidates) for t in drawn} == {CANDIDATES[format]}
    assert {t.label for t in drawn} == set(range(CANDIDATES[format])), "the right one stands anywhere"
    assert len({t.id for t in drawn}) == 50


@pytest.mark.parametrize("name", ["no-commas", "upper", "question", "distinct"])
def test_the_label_is_the_verifiers(name: str) -> None:
    """Families without slots: the verifier needs nothing but the responses."""
    index = list(FAMILIES).index(name)
    for seed in range(20):
        one = task("train", "tir-listwise", index, seed)
        constraint = FAMILIES[name].draw(Random(0), TRAIN)
        assert [constraint.holds(text) for text in one.candidates] == [i == one.label for i in range(4)]


def test_draws_are_functions_of_their_arguments() -> None:
    assert tasks("train", "tir-pairwise", 30, 5) == [task("train", "tir-pairwise", i, 5) for i in range(30)]
    assert [train_draw(i, 7) for i in range(40)] == [train_draw(i, 7) for i in range(40)]
    assert train_draw(0, 7) != train_draw(0, 8)


def test_the_training_stream_mixes_formats_and_families() -> None:
    drawn = [train_draw(index, 1) for index in range(1200)]
    formats = Counter(draw.format for draw in drawn)
    assert formats["tir-pairwise"] == pytest.approx(800, abs=50)
    assert formats["tir-pointwise"] == pytest.approx(200, abs=45)
    assert {draw.task.gold["family"] for draw in drawn} == set(FAMILIES)
    assert all(draw.task.id.split("/")[:2] == ["train", draw.format] for draw in drawn)
    assert len({draw.task.id for draw in drawn}) == 1200


def test_no_held_out_prompt_or_word_is_in_training() -> None:
    train = [train_draw(index, 2).task for index in range(1500)]
    heldout = [t for format in CANDIDATES for t in heldout_tasks(format, 300, 2)]
    assert not {t.prompt for t in train} & {t.prompt for t in heldout}
    texts = " ".join(t.prompt[0].content + " " + " ".join(t.candidates) for t in train).lower()
    words = set("".join(c if c.isalpha() else " " for c in texts).split())
    assert not words & set(HELD_OUT.words)
