"""An RL stage that goes on with more steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.training.conftest import small_rl, train_and_save
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.rl.config import RlConfig

CONFIG = small_rl(warmup_steps=0)


def changed(**settings: Any) -> RlConfig:
    return CONFIG.model_copy(update=settings)


@pytest.fixture(scope="module")
def short(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("short")
    train_and_save(tiny_model, folder, CONFIG)
    return folder


def go_on(short: Path, start: Path, folder: Path, config: RlConfig) -> list[dict[str, Any]]:
    """Train further in a copy of a finished stage; return the metrics of the whole stage."""
    shutil.copytree(short, folder, dirs_exist_ok=True)
    train_and_save(start, folder, config)
    return list(read_lines(folder / "metrics.jsonl"))


@pytest.mark.slow
def test_more_steps_end_as_if_there_had_been_so_many_from_the_start(
    short: Path, tiny_model: Path, tmp_path: Path
) -> None:
    go_on(short, tiny_model, tmp_path / "longer", changed(steps=3))
    train_and_save(tiny_model, tmp_path / "whole", changed(steps=3))
    longer, whole = (
        load_file(tmp_path / name / "model" / "model.safetensors") for name in ("longer", "whole")
    )
    assert all(longer[name].equal(whole[name]) for name in whole)
