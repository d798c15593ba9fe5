"""Shipped recipes run for two batches in two processes, with a two-layer model of their architecture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training import train_command
from tests.training.forked import in_two_processes
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.data.base import data_path
from tirjudge_training.distributed.device import MACHINE
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load, shipped
from tirjudge_training.run.run import train
from tirjudge_training.run.shrink import shrunk

ARCHITECTURES = {
    "tir-judge-zero-8b": ("Qwen3ForCausalLM", False),
    "tir-judge-zero-4b": ("Qwen3ForCausalLM", True),
    "j1-70b": ("LlamaForCausalLM", False),
    "judgelrm-3b": ("Qwen2ForCausalLM", True),
    "rm-r1-distilled-7b": ("Qwen2ForCausalLM", False),
    "rationale-30b-a3b": ("Qwen3MoeForCausalLM", False),
}
REPRESENTATIVES = (
    *ARCHITECTURES,
    "smol",
    "adapt",
    "ablations/j1-8b-pointwise",
    "ablations/j1-8b-scores",
    "ablations/j1-8b-scores-and-verdict",
    "ablations/rm-r1-instruct-32b-answer-only",
)
"""One recipe of every kind; `make soak` runs the others."""


def kind(name: str) -> tuple[object, ...]:
    """Return the settings that decide which code a shrunk recipe runs, except its architecture."""
    recipe = load(Recipe, name)
    judges = tuple(sorted(judge.name for judge in recipe.environments.values()))
    return (recipe.method == "answers", recipe.rl.loss, recipe.rl.sigma, judges)


def main(folder: Path, *names: str) -> None:
    """Run these recipes in all launched processes."""
    processes = Processes.launched()
    for name in names:
        recipe = load(Recipe, name, ["rl.sandbox=local"])
        small = processes.first(lambda recipe=recipe, name=name: shrunk(recipe, folder / name))
        train(small, folder / name, say=lambda line: None, processes=processes)


def trained_in_two_processes(folder: Path, *names: str) -> Path:
    in_two_processes(main, folder, *names, folder=folder)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_in_two_processes(tmp_path_factory.mktemp("shrunk"), *REPRESENTATIVES)


@pytest.fixture(scope="module")
def others_trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    others = (name for name in shipped() if name not in REPRESENTATIVES)
    return trained_in_two_processes(tmp_path_factory.mktemp("others"), *others)


def trained_for_two_batches(folder: Path, name: str) -> None:
    if load(Recipe, name).method == "answers":
        assert any((folder / name).rglob("model.safetensors"))
        return
    metrics = list(read_lines(folder / name / "rl" / "metrics.jsonl"))
    assert [row["step"] for row in metrics] == [0, 1]
    assert all(row["entropy"] > 0 for row in metrics), "the model's own tokens must be trained on"
    machine = json.loads((folder / name / "rl" / MACHINE).read_text())
    # `dtype = "auto"` is bfloat16 where the processor computes in it, which has 8 bits for the digits.
    gap = {"float32": 1e-4, "bfloat16": 2**-8}[machine["weights"]]
    assert all(row["sampler_gap"] < gap for row in metrics)
    lora = load(Recipe, name).model.lora
    weights = "model" if lora is None or lora.merge else "adapter_model"
    assert (folder / name / "rl" / "model" / f"{weights}.safetensors").exists()


def test_the_representatives_cover_every_kind() -> None:
    """An unknown architecture fails in `shrunk`; the known ones are tested below."""
    assert {kind(name) for name in shipped()} == {kind(name) for name in REPRESENTATIVES}


@pytest.mark.slow
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_recipe_runs_for_two_batches_in_two_processes(name: str, trained: Path) -> None:
    trained_for_two_batches(trained, name)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in shipped() if name not in REPRESENTATIVES])
def test_every_other_recipe_runs_for_two_batches_in_two_processes(name: str, others_trained: Path) -> None:
    trained_for_two_batches(others_trained, name)


@pytest.mark.parametrize("name", shipped())
def test_every_recipe_can_be_shrunk(name: str, tmp_path: Path) -> None:
    """The small recipe is valid, and its model and rows exist."""
    small = shrunk(load(Recipe, name), tmp_path)
    assert (small.rl.steps, small.rl.groups, small.rl.samples) == (2, 2, 2)
    assert (Path(small.model.base) / "model.safetensors").exists()
    assert data_path(small.data.train).exists()


def test_a_shrunk_recipe_screens_nothing_and_needs_no_kernels_of_a_gpu(tmp_path: Path) -> None:
    settings = ["rl.screen.samples=8", "model.liger=true", "model.attn_implementation=flash_attention_2"]
    small = shrunk(load(Recipe, "judgelrm-7b", [*settings, "rl.epochs=", "rl.steps=9"]), tmp_path)
    assert small.rl.screen is None
    assert (small.model.liger, small.model.attn_implementation) == (False, "sdpa")


@pytest.mark.slow
def test_the_shrink_option_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shrunk run has a folder of its own next to that of the real run."""
    monkeypatch.chdir(tmp_path)
    ran = train_command.train("--recipe", "judgelrm-3b", "--shrink")
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.strip() == "runs/judgelrm-3b-0-shrunk/rl/model"
    assert (tmp_path / ran.stdout.strip() / "model.safetensors").exists()
