"""Which tasks a run draws."""

from __future__ import annotations

from tirjudge_training.run import source


def test_a_draw_depends_on_nothing_but_its_place_and_the_seed() -> None:
    """Hence a resumed run draws what an uninterrupted one does."""
    assert source(4, seed=0)(2, 1, 3) == source(4, seed=0)(2, 1, 3)
    assert source(4, seed=0)(2, 1, 3) != source(4, seed=1)(2, 1, 3)


def test_batches_and_replacements_share_no_task() -> None:
    deal = source(4, seed=0)
    drawn = [
        deal(step, turn, position).task.id for step in range(5) for turn in range(3) for position in range(4)
    ]
    assert len(set(drawn)) == len(drawn)
