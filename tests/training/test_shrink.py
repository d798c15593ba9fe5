"""Every shipped recipe with a two-layer model of its architecture, for two batches, in two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

from tirjudge.storage.run_folder import read_lines
from tirjudge_training.cli import train as train_command
from tirjudge_training.config import load, shipped
from tirjudge_training.processes import Processes
from tirjudge_training.recipe import Recipe
from tirjudge_training.run import train
from tirjudge_training.shrink import shrunk

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
ARCHITECTURES = {
    "tir-judge-zero-8b": ("Qwen3ForCausalLM", False),
    "tir-judge-zero-4b": ("Qwen3ForCausalLM", True),
    "j1-70b": ("LlamaForCausalLM", False),
    "judgelrm-3b": ("Qwen2ForCausalLM", True),
    "rm-r1-distilled-7b": ("Qwen2ForCausalLM", False),
    "rationale-30b-a3b": ("Qwen3MoeForCausalLM", False),
}


def main(folder: Path) -> None:
    """All recipes, by all processes that were launched."""
    processes = Processes.launched()
    for name in shipped():
        recipe = load(Recipe, name, ["rl.sandbox=local"])
        small = processes.first(lambda recipe=recipe, name=name: shrunk(recipe, folder / name))
        train(small, folder / name, command=name, say=lambda line: None, processes=processes)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shrunk")
    command = [sys.executable, *TORCHRUN, str(Path(__file__)), str(folder)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", shipped())
def test_a_recipe_runs_for_two_batches_in_two_processes(name: str, trained: Path) -> None:
    folder = trained / name
    if load(Recipe, name).method == "answers":
        assert any(folder.rglob("model.safetensors"))
        return
    metrics = list(read_lines(folder / "rl" / "metrics.jsonl"))
    assert [row["step"] for row in metrics] == [0, 1]
    assert all(row["entropy"] > 0 for row in metrics), "what the model wrote was trained on"
    assert all(row["sampler_gap"] < 1e-4 for row in metrics)
    assert (folder / "rl" / "model" / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_two_layers_of_the_architecture(name: str, trained: Path) -> None:
    model = trained / name / "rl" / "model"
    config = json.loads((model / "config.json").read_text())
    kind, tied = ARCHITECTURES[name]
    assert (config["architectures"], config["num_hidden_layers"]) == ([kind], 2)
    assert ("lm_head.weight" not in load_file(model / "model.safetensors")) == tied


def typed(*words: str) -> Result:
    app = typer.Typer()
    app.command()(train_command)
    return CliRunner().invoke(app, words)


def test_as_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside, and not in, the folder of the run itself."""
    monkeypatch.chdir(tmp_path)
    ran = typed("--recipe", "judgelrm-3b", "--shrink")
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.strip() == "runs/judgelrm-3b-0-shrunk/rl/model"
    assert (tmp_path / ran.stdout.strip() / "model.safetensors").exists()


def test_a_base_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    ran = typed("--recipe", "j1-8b", "--shrink", "--model", "./nothing", "--output", str(tmp_path / "run"))
    assert ran.exit_code == 2
    assert ran.stderr.startswith("tirjudge train: model.base: ./nothing: ")
    assert ran.stderr.count("\n") == 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
