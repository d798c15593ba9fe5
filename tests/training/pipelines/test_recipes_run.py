"""The recipes of the papers run as commands, with a tiny model, a few rows and one small batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.training.one_batch import ONE_BATCH
from tirjudge.storage.run_folder import read_lines
from tirjudge_training.cli import train


def rows(folder: Path, *, tie: bool) -> Path:
    """Five pairs with gold scores, of which one is held back for validation."""
    path, scores = folder / "rows.jsonl", [8, 8 if tie else 7]
    lines = ({"prompt": f"q{n}", "responses": ["a", "b"], "gold_scores": scores} for n in range(5))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("recipe", "tie", "steps"),
    [
        pytest.param("judgelrm-7b", True, 2, id="judgelrm, which learns from ties too"),
        pytest.param("j1-8b", False, 4, id="j1, whose pairs are two views each"),
        pytest.param("rm-r1-distilled-7b", False, 2, id="rm-r1"),
    ],
)
def test_a_recipe_of_a_paper_runs_for_an_epoch(
    recipe: str, tie: bool, steps: int, roomy_model: Path, tmp_path: Path
) -> None:
    words = ["--recipe", recipe, "--model", str(roomy_model), "--data", str(rows(tmp_path, tie=tie))]
    for assignment in ONE_BATCH:
        words += ["--set", assignment]
    app = typer.Typer()
    app.command()(train)
    result = CliRunner().invoke(app, [*words, "--output", str(tmp_path / "run")])
    assert result.exit_code == 0, result.stderr
    assert len(list(read_lines(tmp_path / "run" / "rl" / "metrics.jsonl"))) == steps
    episodes = list(read_lines(tmp_path / "run" / "rl" / "episodes.jsonl"))
    assert all(one["reward"]["total"] is not None for episode in episodes for one in episode["trajectories"])
