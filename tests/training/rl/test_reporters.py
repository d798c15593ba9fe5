"""The metrics of a run, read back from its reporter."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.training.conftest import ENVIRONMENTS, source
from tirjudge.storage.run_folder import RunFolder, read_lines
from tirjudge_training.rl import config
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.run import train_rl

CONFIG = RlConfig(
    steps=2, groups=2, samples=4, optimizer_steps=2, micro_batch=4, max_tokens=120, report_to=("tensorboard",)
)


def test_tensorboard_has_the_metrics_of_the_run_folder(tiny_model: Path, tmp_path: Path) -> None:
    with RunFolder(tmp_path) as run:
        train_rl(
            tiny_model,
            run,
            CONFIG,
            environments=ENVIRONMENTS,
            source=source,
            seed=1,
            say=lambda line: None,
        )
    (events,) = tmp_path.glob("checkpoints/runs/*/events.out.tfevents.*")
    shown = EventAccumulator(str(events))
    shown.Reload()
    rows = list(read_lines(tmp_path / "metrics.jsonl"))
    names = {
        *("loss", "grad_norm", "entropy", "kl", "clipped_low", "clipped_high", "sampler_gap"),
        *("reward", "tokens/model", "tools/calls", "tools/error_rate", "groups/dropped"),
        *("groups/replacement_tasks", "share/generation", "share/sandbox", "share/training"),
    }
    assert names <= rows[0].keys()
    for name in set().union(*rows) - {"step"}:
        points = [(point.step, point.value) for point in shown.Scalars(f"train/{name}")]
        kept = [((row["step"] + 1) * CONFIG.optimizer_steps, row[name]) for row in rows if name in row]
        assert points == [(step, pytest.approx(value, rel=1e-5)) for step, value in kept], name


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = PathFinder.find_spec
    monkeypatch.setattr(
        PathFinder, "find_spec", lambda name, *rest: None if name == "wandb" else find(name, *rest)
    )
    config.require_reporters(("tensorboard",))
    with pytest.raises(config.ReporterMissing, match=r"pip install 'tirjudge\[wandb\]'"):
        config.require_reporters(("tensorboard", "wandb"))
