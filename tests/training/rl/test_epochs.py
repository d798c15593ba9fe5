"""Epochs over a file of rows: the number of batches, and rows that are too long."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from tirjudge_environments import ChatEncoder
from tirjudge_training import model_folder
from tirjudge_training.recipe import Recipe
from tirjudge_training.run.context import counted, data_of

LENGTHS = [10 * number for number in range(1, 41)]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Forty pairs with growing prompts; two are held back for validation."""
    path = tmp_path / "rows.jsonl"
    lines = (
        {"prompt": "x" * length, "response_a": "good", "response_b": "bad", "label": "A"}
        for length in LENGTHS
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def recipe(
    rows: Path, judge: dict[str, object], rl: dict[str, object], base: Path | str = "nowhere", **data: object
) -> Recipe:
    return Recipe.model_validate(
        {
            "model": {"base": str(base)},
            "data": {"train": rows, **data},
            "environments": {"judge": judge},
            "rl": {"groups": 8, "samples": 2, "micro_batch": 4, **rl},
        }
    )


@pytest.mark.parametrize(
    ("judge", "epochs", "steps"),
    [
        ({"name": "rm-r1"}, 1, 5),
        ({"name": "rm-r1"}, 2, 10),
        ({"name": "rm-r1"}, 0.5, 3),
        ({"name": "rm-r1", "options": {"order": "both"}}, 1, 10),
    ],
)
def test_an_epoch_shows_every_training_row_once(
    rows: Path, judge: dict[str, object], epochs: float, steps: int
) -> None:
    """There are 38 training rows, in batches of 8 views."""
    planned = recipe(rows, judge, {"epochs": epochs})
    data = data_of(planned)
    rl = counted(planned, data).rl
    assert (rl.steps, rl.epochs) == (steps, None)
    views = 2 if "options" in judge else 1
    assert rl.rows == 38 * epochs
    assert steps == -(-rl.rows * views // 8)
    source, sampled = data.source(0, rl.rows), []
    while (found := source(0)) is not None:
        source.draw([0])
        sampled.append(found.task.id)
    assert len(sampled) == rl.rows
    assert all(count <= math.ceil(epochs) for count in Counter(sampled).values())


def test_tasks_of_several_views_do_not_fill_every_batch(rows: Path) -> None:
    """Nine slots hold four pairs in both orders, so that 38 rows take ten batches."""
    judge = {"name": "rm-r1", "options": {"order": "both"}}
    planned = recipe(rows, judge, {"epochs": 1, "groups": 9, "micro_batch": 2})
    assert counted(planned, data_of(planned)).rl.steps == 10


def test_rows_with_too_long_a_prompt_are_left_out(rows: Path, tiny_model: Path) -> None:
    """The tiny tokenizer has one token per byte, so a row's length is known."""
    judge = {"name": "rm-r1", "options": {"style": "reasoning"}}
    every = data_of(recipe(rows, judge, {"steps": 1}))
    encoder = ChatEncoder(model_folder.load_tokenizer(tiny_model))
    tasks = every.prompts(None, 0)
    sizes = {
        formatted.task.id: len(encoder.prompt(every.environments["judge"].prompt(formatted.task, view)))
        for formatted in tasks
        for view in every.environments["judge"].views(formatted.task)
    }
    limit = sorted(sizes.values())[18]
    limited = recipe(rows, judge, {"steps": 1}, tiny_model, max_prompt_tokens=limit)
    kept = {formatted.task.id for formatted in data_of(limited).prompts(None, 0)}
    assert kept == {name for name, size in sizes.items() if size <= limit}
    assert data_of(limited).counts() == {"judge": {"rows": 19, "too_long": 38 - 19}}


def test_responses_that_are_shown_later_count_as_the_prompt_does(tmp_path: Path, tiny_model: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = (
        {"prompt": f"x{size}", "response_a": "a" * size, "response_b": "b"} for size in range(1000, 5000, 100)
    )
    path.write_text("".join(json.dumps(row | {"label": "A"}) + "\n" for row in rows))
    judge = {"name": "checks-pairwise"}
    every = data_of(recipe(path, judge, {"steps": 1})).prompts(None, 0)
    limited = data_of(recipe(path, judge, {"steps": 1}, tiny_model, max_prompt_tokens=5000))
    kept = [len(row.task.candidates[0]) for row in limited.prompts(None, 0)]
    left_out = limited.counts()["judge"]["too_long"]
    assert 0 < left_out == len(every) - len(kept)
    assert sorted(kept) == sorted(len(row.task.candidates[0]) for row in every)[: len(kept)]
