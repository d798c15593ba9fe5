"""Which tasks a run draws."""

from __future__ import annotations

from tirjudge_training.data import DataConfig
from tirjudge_training.generated import GeneratedData


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
