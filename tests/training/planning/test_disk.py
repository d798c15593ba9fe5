"""The estimated disk space of a run, compared with what a real run of the miniature writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tirjudge.models import resolve_model
from tirjudge_training.cli import train
from tirjudge_training.config_files import load
from tirjudge_training.planning.memory import shape
from tirjudge_training.planning.requirements import disk_bytes
from tirjudge_training.recipe import Recipe
from tirjudge_training.run import data_of, pipeline_of

ASSIGNMENTS = (
    "rl.steps=4",
    "rl.groups=8",
    "rl.micro_batch=32",
    "rl.replacement_rounds=0",
    "rl.checkpoint_every=1",
    "rl.keep_checkpoints=2",
    "heldout.n=1",
)


def written(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_run_writes_what_was_estimated(tmp_path: Path) -> None:
    """Weights are within 2 %, since tokenizers and small files are not counted, and rollouts within 50 %."""
    model = resolve_model("mini")
    assignments = [f'model.base="{model}"', *ASSIGNMENTS]
    recipe = load(Recipe, "mini", assignments)
    pipeline, data = pipeline_of(recipe), data_of(recipe)
    estimate = disk_bytes(recipe, pipeline, data, shape(model))
    app = typer.Typer()
    app.command()(train)
    words = [word for one in assignments for word in ("--set", one)]
    ran = CliRunner().invoke(app, ["--recipe", "mini", *words, "--output", str(tmp_path / "run")])
    assert ran.exit_code == 0, ran.stderr
    stage = tmp_path / "run" / "rl"
    kept = len(list((stage / "checkpoints").glob("checkpoint-*")))
    assert kept == 2
    assert written(stage / "checkpoints") / kept == pytest.approx(
        estimate["checkpoints"] / (kept + 1), rel=0.02
    )
    assert written(stage / "model") == pytest.approx(estimate["models"], rel=0.02)
    rollouts = written(stage / "rollouts") + (stage / "episodes.jsonl").stat().st_size
    assert rollouts == pytest.approx(estimate["rollouts"], rel=0.5)
