"""`tirjudge train` under `accelerate launch` with the shipped FSDP2 configuration, in two CPU processes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors.torch import load_file

from tests.training.launching import FLOAT32, launched, take_cpus_for, typed
from tirjudge.storage.run_folder import read_lines
from tirjudge_training import model_folder

RECIPE = ("--recipe", "tir-judge-zero-8b", "--shrink")
KEYS = ("--set", "rl.sandbox=local", "--set", "rl.learning_rate=1e-3", "--set", "rl.entropy_bonus=0.1")
"""Random weights earn no reward, so that without the entropy bonus there would be no gradient."""
RUNS = {"whole": (), "lora": ("--set", "model.lora.rank=4")}
CHECKPOINT = "rl/checkpoints/checkpoint-{}"


def main(folder: Path) -> None:
    """Run each recipe in all launched processes, and once more from its first checkpoint."""
    take_cpus_for(
        DistributedType.MULTI_GPU
    )  # the type whose model accelerate shards; torch's FSDP2 needs no GPU
    for name, options in RUNS.items():
        typed(*RECIPE, *KEYS, *options, "--output", str(folder / name))
        if PartialState().is_main_process:
            shutil.copytree(folder / name / "rl", folder / name / "uninterrupted")
            shutil.rmtree(folder / name / CHECKPOINT.format(2))
            (folder / name / "rl" / "done.json").unlink()
        PartialState().wait_for_everyone()
        typed(*RECIPE, *KEYS, *options, "--output", str(folder / name))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same commands in this process and in two launched processes."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name, options in RUNS.items():
        typed(*RECIPE, *KEYS, *options, "--output", str(one / name))
    ran = launched("fsdp2.yaml", FLOAT32, __file__, str(two))
    assert ran.returncode == 0, ran.stderr[-3000:]
    return one, two


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_recipe_sharded_over_two_processes_has_the_loss_of_one(name: str, runs: tuple[Path, Path]) -> None:
    alone, shared = (list(read_lines(folder / name / "rl" / "metrics.jsonl")) for folder in runs)
    assert len(alone) == len(shared) == 2
    for one, two in zip(alone, shared, strict=True):
        for number in ("loss", "grad_norm", "kl", "entropy", "reward"):
            assert two[number] == pytest.approx(one[number], abs=1e-5), number
        assert one["grad_norm"] > 1e-4
        assert two["sampler_gap"] < 1e-5, "the sampler must use the current weights"


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_full_weights_are_saved_and_resumed(name: str, runs: tuple[Path, Path]) -> None:
    one, two = runs
    checkpoint = two / name / CHECKPOINT.format(2)
    assert (checkpoint / "optimizer.bin").exists(), "accelerate writes this file for a sharded model"
    expected = load_file(one / name / "rl" / "model" / "model.safetensors")
    if name == "whole":
        estimate = 16 * sum(weight.numel() for weight in expected.values())
        assert sum(file.stat().st_size for file in checkpoint.iterdir()) == pytest.approx(estimate, rel=0.05)
    for stage in ("uninterrupted", "rl"):
        found = load_file(two / name / stage / "model" / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.allclose(found[key], expected[key], rtol=0, atol=1e-5) for key in expected), stage
    judged = model_folder.load(checkpoint)[0].state_dict()
    assert all(torch.allclose(judged[key], expected[key], rtol=0, atol=1e-5) for key in expected)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
