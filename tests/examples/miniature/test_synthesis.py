"""Generated tasks have right labels, are reproducible, and share nothing with the held-out half."""

from __future__ import annotations

from collections import Counter

import pytest

from examples.miniature.constraints import FAMILIES, HELD_OUT
from examples.miniature.synthesis import CANDIDATES, heldout_tasks, train_task


@pytest.mark.parametrize("format", CANDIDATES)
def test_one_candidate_is_right_and_the_families_take_turns(format: str) -> None:
    sampled = heldout_tasks(format, 50, seed=3)
    assert [t.gold["family"] for t in sampled] == [*FAMILIES, *FAMILIES]
    assert {len(t.candidates) for t in sampled} == {CANDIDATES[format]}
    assert {t.label for t in sampled} == set(range(CANDIDATES[format])), (
        "the right response may be in any position"
    )
    assert len({t.id for t in sampled}) == 50


def test_the_training_stream_mixes_formats_and_families() -> None:
    sampled = [train_task(index, 1) for index in range(1200)]
    formats = Counter(formatted.format for formatted in sampled)
    # The recipe's mixture is 2 : 1 : 1.
    assert formats["tir-pairwise"] == pytest.approx(600, abs=50)
    assert formats["tir-pointwise"] == pytest.approx(300, abs=45)
    assert {formatted.task.gold["family"] for formatted in sampled} == set(FAMILIES)
    assert all(formatted.task.id.split("/")[:2] == ["train", formatted.format] for formatted in sampled)
    assert len({formatted.task.id for formatted in sampled}) == 1200


def test_no_held_out_prompt_or_word_is_in_training() -> None:
    train = [train_task(index, 2).task for index in range(1500)]
    heldout = [t for format in CANDIDATES for t in heldout_tasks(format, 300, 2)]
    assert not {t.prompt for t in train} & {t.prompt for t in heldout}
    texts = " ".join(t.prompt[0].content + " " + " ".join(t.candidates) for t in train).lower()
    words = set("".join(c if c.isalpha() else " " for c in texts).split())
    assert not words & set(HELD_OUT.words)
