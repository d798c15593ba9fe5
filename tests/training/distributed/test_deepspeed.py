"""`tirjudge train` under `accelerate launch` with the shipped DeepSpeed file, in two CPU processes."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import DistributedType
from safetensors.torch import load_file

from tests.training.launching import FLOAT32, launched, take_cpus_for, typed
from tirjudge.storage.run_folder import read_lines
from tirjudge_training import cli, model_folder
from tirjudge_training.distributed import device
from tirjudge_training.distributed.device import Device
from tirjudge_training.policies import transformers
from tirjudge_training.rl import grpo

pytestmark = [
    pytest.mark.deepspeed,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(600),
]
CONFIG = "deepspeed.yaml"
RL = (
    *("--recipe", "tir-judge-zero-8b", "--shrink"),
    *(
        "--set",
        "rl.sandbox=local",
        "--set",
        "rl.learning_rate=1e-3",
        "--set",
        "rl.length_buckets=2",
    ),
    # Random weights earn no reward: without the bonus there would be no gradient.
    *("--set", "rl.entropy_bonus=0.1"),
)
SFT = (
    *("--recipe", "ablations/rm-r1-instruct-32b-answer-only-9k", "--shrink"),
    *("--set", "sft.learning_rate=1e-3", "--set", "sft.checkpoint_every=1"),
)
RUNS = {
    "rl-clipped": (*RL, "--set", "rl.max_grad_norm=1e-6"),
    "rl-lora": (*RL, "--set", "model.lora.rank=4"),
    "sft": SFT,
    "sft-lora": (*SFT, "--set", "model.lora.rank=4"),
    "rl": RL,
}
KILLED = "rl"
"""The run that is killed in the middle of its second batch; the others lose their second checkpoint."""


def main(folder: Path, how: str) -> None:
    """Start or resume the runs in all launched processes."""
    use_cpu_accelerator()
    if how == "as on GPUs":
        for module in (device, model_folder, transformers, grpo):
            assert hasattr(module, "current_device"), module
            module.current_device = lambda: Device("cpu", autocast="bfloat16", checkpointing=True)
        typed(*RL, "--output", str(folder))
        return
    for name, words in RUNS.items():
        if (name, how) == (KILLED, "killed"):
            cli.log = die_at_the_second_batch
        typed(*words, "--output", str(folder / name))


def use_cpu_accelerator() -> None:
    """Make DeepSpeed use its CPU accelerator."""
    import deepspeed

    take_cpus_for(DistributedType.DEEPSPEED)
    # Not needed for training, and its compilation would take two minutes.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def die_at_the_second_batch(line: str) -> None:
    if "rl 2/2" in line:
        os.kill(os.getpid(), signal.SIGKILL)


def stage(run: str) -> str:
    return run.partition("-")[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same commands in this process, and twice in two launched processes."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for name, words in RUNS.items():
        typed(*words, "--output", str(one / name))
    assert launched(CONFIG, FLOAT32, __file__, str(two), "killed").returncode == 1
    assert not (two / KILLED / "rl" / "done.json").exists()
    for name in RUNS.keys() - {KILLED}:
        whole = two / name / stage(name)
        shutil.copytree(whole, two / name / "uninterrupted")
        shutil.rmtree(whole / "checkpoints" / "checkpoint-2")
        (whole / "done.json").unlink()
    ran = launched(CONFIG, FLOAT32, __file__, str(two), "to the end")
    assert ran.returncode == 0, ran.stderr[-3000:]
    return one, two


@pytest.mark.parametrize("name", [name for name in RUNS if stage(name) == "rl"])
def test_two_processes_give_the_loss_of_one(name: str, runs: tuple[Path, Path]) -> None:
    alone, shared = (list(read_lines(folder / name / "rl" / "metrics.jsonl")) for folder in runs)
    assert len(alone) == len(shared) == 2
    for one, two in zip(alone, shared, strict=True):
        for number in ("loss", "grad_norm", "kl", "entropy", "reward"):
            assert two[number] == pytest.approx(one[number], abs=1e-5), number
        assert one["grad_norm"] > 1e-4
        assert two["sampler_gap"] < 1e-5, "the sampler must use the current weights"


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_end_with_the_weights_of_one_also_when_resumed(
    name: str, runs: tuple[Path, Path]
) -> None:
    """The weights move by about the learning rate, 1e-3, in each of two steps.

    The distance is that of all weights together. Adam divides by the size of a gradient, so a weight whose
    gradient is nearly zero may move differently when the same numbers are added in another order.
    """
    one, two = (folder / name / stage(name) for folder in runs)
    expected = load_file(one / "model" / "model.safetensors")
    start = load_file(runs[0] / name / "shrunk" / "model" / "model.safetensors")
    assert largest_difference(expected, start) > 1e-3
    ends = [
        load_file(two / "model" / "model.safetensors"),
        model_folder.load(two / "checkpoints" / "checkpoint-2")[0].state_dict(),
    ]
    if name != KILLED:
        ends.append(load_file(two.parent / "uninterrupted" / "model" / "model.safetensors"))
    for end in ends:
        assert distance(end, expected) < 2e-4 * distance(start, expected)


def test_gradients_are_clipped_by_the_recipes_norm(runs: tuple[Path, Path]) -> None:
    """The norm is the recipe's, and not accelerate's default of 1.0."""
    clipped, free = (
        load_file(runs[1] / name / "rl" / "model" / "model.safetensors") for name in ("rl-clipped", "rl")
    )
    assert largest_difference(clipped, free) > 1e-4


def test_the_moments_are_sharded_over_the_processes(runs: tuple[Path, Path]) -> None:
    """Each process holds half of DeepSpeed's float32 weights and of Adam's two moments.

    The checkpoint also has the weights twice, in transformers' format and in DeepSpeed's.
    """
    weights = load_file(runs[1] / "rl" / "rl" / "model" / "model.safetensors")
    parameters = sum(weight.numel() for weight in weights.values())
    each = 12 * parameters / 2
    checkpoint = runs[1] / "rl" / "rl" / "checkpoints" / "checkpoint-2"
    states = list(checkpoint.glob("global_step2/zero_pp_rank_*"))
    assert [path.stat().st_size for path in states] == pytest.approx([each, each], rel=0.02)
    written = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
    assert written == pytest.approx((2 * 4 + 12) * parameters, rel=0.05)


def test_the_shipped_bfloat16_setting_for_gpus(tmp_path: Path) -> None:
    """DeepSpeed casts the model itself, and trains a copy in float32."""
    ran = launched(CONFIG, (), __file__, str(tmp_path), "as on GPUs")
    assert ran.returncode == 0, ran.stderr[-3000:]
    rows = list(read_lines(tmp_path / "rl" / "metrics.jsonl"))
    assert [row["step"] for row in rows] == [0, 1]
    assert all(row["grad_norm"] > 1e-4 and row["sampler_gap"] < 1e-2 for row in rows)
    start, model, checkpoint = (
        load_file(tmp_path / folder / "model.safetensors")
        for folder in ("shrunk/model", "rl/model", "rl/checkpoints/checkpoint-2")
    )
    assert {weight.dtype for weight in model.values()} == {torch.bfloat16}
    assert all(checkpoint[name].equal(weight) for name, weight in model.items())
    assert largest_difference(model, start) > 1e-3
    parameters = sum(weight.numel() for weight in start.values())
    folder = tmp_path / "rl" / "checkpoints" / "checkpoint-2"
    written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert written == pytest.approx((2 * 2 + 12) * parameters, rel=0.07)


def largest_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    return max((found[name] - weight).abs().max().item() for name, weight in expected.items())


def distance(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    return math.hypot(*((found[name] - weight).norm().item() for name, weight in expected.items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
