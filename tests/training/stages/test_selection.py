"""The best checkpoint of an RL stage is selected by right answers to validation prompts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.stages.test_rejection import ROLLOUT, Tasks
from tirjudge.storage.run_folder import JsonObject, RunFolder, read_lines
from tirjudge_training.distributed import checkpoints
from tirjudge_training.evaluation import ValidationConfig
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.run import checkpoints_kept
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.selection import Selection

WEIGHTS = "model.safetensors"


@pytest.fixture
def run(tiny_model: Path, tmp_path: Path) -> Run:
    """A run whose RL left three checkpoints: the model, one that knows nothing, and the model again."""
    for step in (2, 4, 6):
        folder = tmp_path / "rl-0" / "checkpoints" / f"checkpoint-{step}"
        shutil.copytree(tiny_model, folder)
        if step == 4:
            noise = {name: torch.zeros_like(w) for name, w in load_file(folder / WEIGHTS).items()}
            save_file(noise, folder / WEIGHTS, metadata={"format": "pt"})
        checkpoints.mark(folder)
    shutil.copytree(tiny_model, tmp_path / "rl-0" / "model")
    return Run(tmp_path, str(tiny_model), Tasks(), lambda line: None)


def select(run: Run, **update: Any) -> JsonObject:
    stage = Selection(
        name="select-0", stage="rl-0", candidates=3, config=ValidationConfig(n=12), rollout=ROLLOUT
    )
    with RunFolder(run.path / stage.name) as folder:
        return stage.work(folder, run)


def test_the_checkpoint_with_the_most_right_answers_is_selected_the_later_of_equals(run: Run) -> None:
    result = select(run)
    assert result["n"] == 12
    assert result["correct"]["2"] == result["correct"]["6"] > result["correct"]["4"] == 0
    assert result["best"] == 6
    rows = list(read_lines(run.path / "select-0" / "answers-6.jsonl"))
    assert sum(row["correct"] for row in rows) == result["correct"]["6"]
    kept = load_file(run.path / "select-0" / "model" / WEIGHTS)
    best = load_file(run.path / "rl-0" / "checkpoints" / "checkpoint-6" / WEIGHTS)
    assert all(kept[name].equal(best[name]) for name in best)


def test_a_resumed_selection_repeats_no_answer(run: Run) -> None:
    """The second checkpoint's weights are deleted, so that any further answer of it would fail."""
    whole = select(run)
    lost = run.path / "select-0" / "answers-6.jsonl"
    lines = lost.read_bytes().splitlines(keepends=True)
    lost.write_bytes(b"".join(lines[:5]) + lines[5][:10])
    (run.path / "rl-0" / "checkpoints" / "checkpoint-4" / WEIGHTS).unlink()
    assert select(run) == whole
    assert len(lost.read_bytes().splitlines()) == 12


def test_the_number_of_checkpoints_is_known_in_advance() -> None:
    config = RlConfig(steps=1, checkpoint_every=10, keep_checkpoints=5)
    assert [checkpoints_kept(config, steps) for steps in (10, 35, 90)] == [1, 4, 5]
