"""A training method is one file and one entry point: found by name, planned and trained with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tirjudge_training.cli import train
from tirjudge_training.config_files import load
from tirjudge_training.planning.plan import plan
from tirjudge_training.planning.shrink import shrunk
from tirjudge_training.recipe import Recipe
from tirjudge_training.run import data_of, pipeline_of

TWICE = '''
from tirjudge_training.pipelines.pipeline import Pipeline, initial_model, measure, rl
from tirjudge_training.pipelines import Method

class Twice(Method):
    """RL, and RL again with the first model as the reference of the KL divergence."""

    def __init__(self, steps):
        self.steps = steps

    def build(self, recipe):
        start, opening = initial_model(recipe)
        stages = [rl(recipe, "first", start), rl(recipe, "second", "first", steps=self.steps)]
        return Pipeline((*opening, *stages, *measure(recipe, "second", "second")), "second")

    def describe(self, recipe):
        return "RL, twice"
'''
TINY = (
    *("method=twice", "method_options.steps=2", "rl.steps=1", "rl.groups=1", "rl.samples=2"),
    *("rl.filter=none", "rl.max_tokens=20", "heldout.n=1", "heldout.max_tokens=20"),
)


@pytest.fixture(autouse=True)
def twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a package with another method on the path, as an installed distribution."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)
    info = site / "twice-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "twice.py").write_text(TWICE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twice\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tirjudge.training_methods]\ntwice = twice:Twice\n")


def test_a_method_of_another_package_is_planned_and_shrunk(tmp_path: Path) -> None:
    recipe = load(Recipe, "mini", TINY)
    pipeline = pipeline_of(recipe)
    assert [stage.name for stage in pipeline.making] == ["warmup", "heldout-base", "first", "second"]
    lines = list(plan(recipe, pipeline, data_of(recipe), tmp_path / "run"))
    assert any("second" in line and "2 batches of 1 x 2" in line for line in lines)
    assert "checkpoints" in "\n".join(lines)
    assert pipeline_of(shrunk(recipe, tmp_path / "run")).result == "rl", "RL needs no right answers"


def test_a_method_of_another_package_is_trained_with(tiny_model: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(train)
    settings = [word for one in TINY for word in ("--set", one)]
    run = tmp_path / "run"
    done = CliRunner().invoke(app, ["--model", str(tiny_model), *settings, "--output", str(run)])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip() == str(run / "second" / "model")
    assert "| second |" in (run / "results.md").read_text()


def test_an_unknown_option_of_a_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"training method 'twice': .*unexpected keyword argument 'stops'"):
        load(Recipe, "mini", [*TINY, "method_options.stops=1"])


def test_the_public_names_load_without_torch() -> None:
    program = (
        "import sys; from tirjudge_training import JudgeRolloutFunc, Recipe, train; "
        "assert Recipe.load('mini', ['rl.steps=3']).rl.steps == 3; print({'torch', 'trl'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
