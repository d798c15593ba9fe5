"""Rows are drawn once per pass, by batches and replacements together, also after a kill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.training.conftest import ENVIRONMENTS
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_environments import JudgeTask, Message
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.health import HealthConfig
from tirjudge_training.rl.stream import RowStream
from tirjudge_training.rl.training_loop import train_rl

ROWS, EPOCHS = 7, 2


def row(position: int) -> FormattedTask:
    """Return a row by its number in the pass; every third is two views."""
    number = position % ROWS
    task = JudgeTask(id=f"r{number}", prompt=(Message("user", "q"),), candidates=("good", "bad"), label=0)
    return FormattedTask("tir-pointwise" if number % 3 == 2 else "tir-pairwise", task)


def stream() -> RowStream:
    return RowStream(row, per_pass=ROWS, limit=EPOCHS * ROWS)


def drawn(rows: RowStream, rng: Random) -> list[str]:
    """Draw some of the next rows, as a batch does that cannot use every one of them."""
    found = [rows(position) for position in range(5)]
    used = [i for i, one in enumerate(found) if one is not None and rng.random() < 0.6]
    rows.draw(used)
    return [one.task.id for i in used if (one := found[i]) is not None]


def test_every_row_is_drawn_once_per_pass_and_a_place_leads_on_as_before() -> None:
    """Rows that a batch passes over come first in the next one; 14 draws are two passes of seven."""
    for seed in range(20):
        rows, rng, found = stream(), Random(seed), list[str]()
        while not rows.exhausted:
            place, state = rows.place, rng.getstate()
            batch = drawn(rows, rng)
            again, other = stream(), Random()
            again.go_to(place)
            other.setstate(state)
            assert drawn(again, other) == batch
            found += batch
            assert rows.seen == len(found)
        assert Counter(found) == {f"r{number}": EPOCHS for number in range(ROWS)}
        assert rows(0) is None


CONFIG = RlConfig(
    steps=7,
    rows=EPOCHS * ROWS,
    groups=3,
    samples=2,
    micro_batch=2,
    learning_rate=1e-3,
    beta=0.0,
    max_tokens=60,
    replacement_rounds=2,
    checkpoint_every=2,
    keep_checkpoints=9,
    # The random model writes more and more programs that fail.
    health=HealthConfig(errors=1.0),
)


def train(start: Path, folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
    with RunFolder(folder) as run:
        train_rl(start, run, CONFIG, environments=ENVIRONMENTS, source=stream(), seed=1, say=say)


def rows_of(folder: Path) -> list[tuple[int, bool, str]]:
    """Return (step, replacement, id) of the first sample of each row."""
    return [
        (row["step"], row["replacement"], row["id"])
        for row in read_lines(folder / "episodes.jsonl")
        if row["sample"] == 0
    ]


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    train(tiny_model, folder)
    return folder


def metrics(folder: Path) -> list[dict[str, Any]]:
    return list(read_lines(folder / "metrics.jsonl"))


@pytest.mark.slow
def test_two_epochs_sample_every_row_twice_replacements_included(whole: Path) -> None:
    found = rows_of(whole)
    assert Counter(name for _, _, name in found) == {f"r{number}": EPOCHS for number in range(ROWS)}
    assert any(replacement for _, replacement, _ in found), "nothing was replaced, so nothing is shown"
    seen = [row["rows/seen"] for row in metrics(whole)]
    assert seen == [sum(step <= last for step, _, _ in found) for last in range(len(seen))]
    assert (seen[-1], metrics(whole)[-1]["rows/passes"]) == (EPOCHS * ROWS, EPOCHS)
    assert len(seen) < CONFIG.steps, "replacements use rows up, so that fewer batches are made"
    assert (whole / "checkpoints" / f"checkpoint-{len(seen)}").is_dir(), "the last step has a checkpoint"


@pytest.mark.slow
def test_a_run_that_had_seen_all_rows_makes_no_further_step(whole: Path, tiny_model: Path) -> None:
    before = rows_of(whole)
    train(tiny_model, whole)
    assert rows_of(whole) == before
