"""A pass over all rows before RL leaves out rows that are always right or always wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.conftest import ENVIRONMENTS
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.data.base import DataConfig, EnvironmentConfig
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import BadRecipe, load
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.rl.screening import ScreenConfig
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.screen import Screen, teaching_rows

SCREENING = [("known", 8, 8), ("also known", 8, 8), ("mixed", 3, 8), ("hopeless", 0, 8), ("unscored", 0, 0)]


def screened(folder: Path, rows: Any = SCREENING) -> Path:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps({"id": id, "right": right, "samples": of}) for id, right, of in rows)
    (folder / "screened.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return folder


def pairs(path: Path, count: int) -> RowData:
    rows = [
        {"id": f"{number}", "prompt": f"Say {number}.", "responses": [f"{number}", "no"], "label": "A"}
        for number in range(count)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    judges = {"tir-pairwise": EnvironmentConfig(name="tir-pairwise")}
    return RowData(DataConfig(train=path), judges)


def test_rows_that_are_always_right_or_always_wrong_are_left_out(tmp_path: Path) -> None:
    folder = screened(tmp_path)
    assert teaching_rows(folder, ScreenConfig(), 0) == {"mixed", "unscored"}
    # Half of the rows are replayed: as many known rows as mixed ones.
    assert teaching_rows(folder, ScreenConfig(replay=0.5), 0) == {"mixed", "unscored", "known", "also known"}
    assert len(teaching_rows(folder, ScreenConfig(replay=0.34), 0)) == 3
    with pytest.raises(BadRecipe, match=r"rl\.screen: each of the 1 rows"):
        teaching_rows(screened(tmp_path / "none", [("known", 8, 8)]), ScreenConfig(), 0)


def test_rl_draws_only_from_the_chosen_rows(tmp_path: Path) -> None:
    data = pairs(tmp_path / "rows.jsonl", 40)
    every = [task.task.id for task in data.prompts(None, 0)]
    chosen = frozenset(every[:5])
    source = data.source(7, chosen=chosen)
    drawn = [source(position).task.id for position in range(15)]
    assert [set(drawn[start : start + 5]) for start in (0, 5, 10)] == [chosen] * 3
    assert source.metrics["rows/passes"] == 0.0
    whole = data.source(7)
    assert sorted(whole(position).task.id for position in range(len(every))) == sorted(every)


def test_every_row_is_screened_once_also_by_a_resumed_stage(tiny_model: Path, tmp_path: Path) -> None:
    data = pairs(tmp_path / "rows.jsonl", 8)
    data.environments = {"tir-pairwise": ENVIRONMENTS["tir-pairwise"]}
    stage = Screen(name="screen", config=ScreenConfig(samples=2), rollout=RolloutConfig(max_tokens=60))
    tasks = data.prompts(None, stage.seed)
    # The first row was screened before the stage was killed.
    done = {"index": 0, "id": tasks[0].task.id, "samples": 2, "right": 1}
    (tmp_path / "screen").mkdir()
    with RunFolder(tmp_path / "screen") as folder:
        folder.append("screened.jsonl", done)
        result = stage.work(folder, Run(tmp_path, str(tiny_model), data, print))
    rows = list(read_lines(tmp_path / "screen" / "screened.jsonl"))
    assert [row["id"] for row in rows] == [task.task.id for task in tasks]
    assert rows[0] == done
    assert all(row["samples"] == 2 and 0 <= row["right"] <= 2 for row in rows)
    assert result["rows"] == len(tasks)

    # Another arm uses the same pass, without a model.
    shared = stage.model_copy(update={"config": ScreenConfig(samples=2, passed=tmp_path / "screen")})
    shared.check(data)
    (tmp_path / "second").mkdir()
    with RunFolder(tmp_path / "second") as folder:
        folder.append("screened.jsonl", rows[0])  # by a start that was killed
        assert shared.work(folder, Run(tmp_path, "no model", data, print)) == result
    assert list(read_lines(tmp_path / "second" / "screened.jsonl")) == rows
    other = pairs(tmp_path / "more.jsonl", 12)
    (tmp_path / "third").mkdir()
    with (
        RunFolder(tmp_path / "third") as folder,
        pytest.raises(BadRecipe, match=r"rl\.screen\.passed: .* lacks"),
    ):
        shared.work(folder, Run(tmp_path, "no model", other, print))


def test_a_screening_comes_before_rl_and_needs_rows_of_a_known_number() -> None:
    recipe = load(Recipe, "smol", ["rl.screen.samples=8"])
    names = [stage.name for stage in pipeline_of(recipe).stages]
    assert names.index("screen") == names.index("rl") - 1
    with pytest.raises(BadRecipe, match=r"rl\.epochs"):
        load(Recipe, "smol", ["rl.screen.samples=8", "rl.steps=0", "rl.epochs=1"])
