"""Several processes, started by torchrun on the CPU, train exactly as one does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import ENVIRONMENTS, source
from tirjudge.storage.run_folder import read_lines
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.rl.batching import seed_shuffle, shard_batch
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.run import train_rl

CONFIG = RlConfig(
    steps=2,
    groups=4,
    samples=4,
    optimizer_steps=2,
    micro_batch=2,
    length_buckets=3,
    beta=0.01,
    entropy_bonus=0.01,
    learning_rate=1e-3,
    max_tokens=120,
    checkpoint_every=1,
)
LOSSES = ("dapo", "sequence")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def main(start: Path, folder: Path) -> None:
    """Run every loss in all launched processes; the first of several is interrupted."""
    processes = Processes.launched()
    for loss in LOSSES:
        if processes.world > 1 and loss == "dapo":
            with pytest.raises(Interrupted):
                run_rl(start, folder / loss, loss, processes, interrupt)
        run_rl(start, folder / loss, loss, processes, lambda line: None)


class Interrupted(Exception):
    pass


def interrupt(line: str) -> None:
    """Interrupt between the checkpoints of the first and the second step."""
    if line.startswith("rl 2/2"):
        raise Interrupted


def run_rl(start: Path, folder: Path, loss: str, processes: Processes, say: Callable[[str], None]) -> None:
    with processes.folder(folder) as run:
        model = train_rl(
            start,
            run,
            CONFIG.model_copy(update={"loss": loss}),
            environments=ENVIRONMENTS,
            source=source,
            seed=1,
            say=say,
            processes=processes,
        )
        if processes.rank == 0:
            model.save_pretrained(folder / "model")


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(read_lines(folder / name))


@pytest.fixture(scope="module")
def runs(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Run the same configurations in this process and in two that torchrun starts."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    main(tiny_model, one)
    subprocess.run(
        [sys.executable, *TORCHRUN, __file__, str(tiny_model), str(two)],
        check=True,
    )
    return one, two


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_give_the_loss_of_one(loss: str, runs: tuple[Path, Path]) -> None:
    """Rollouts, filter, replacements and optimizer steps agree, also resumed; only the first writes."""
    one, two = (rows(folder / loss, "metrics.jsonl") for folder in runs)
    assert sum(row["groups/replacement_tasks"] for row in one) > 0, "the case must exercise dynamic sampling"
    assert len(one) == len(two) == CONFIG.steps
    for alone, shared in zip(one, two, strict=True):
        for name in ("loss", "grad_norm", "entropy", "kl", "reward", "groups/dropped", "tools/calls"):
            assert shared[name] == pytest.approx(alone[name], abs=1e-5), name
    rollouts, shared_rollouts = (
        [episode["id"] for episode in rows(folder / loss, "episodes.jsonl")] for folder in runs
    )
    assert rollouts == shared_rollouts
    alone, shared = (load_file(folder / loss / "model" / "model.safetensors") for folder in runs)
    assert all(torch.allclose(alone[name], shared[name], rtol=0, atol=1e-5) for name in alone)


@pytest.mark.parametrize("steps", [1, 2])
def test_an_optimizer_step_has_the_same_rows_for_any_number_of_processes(steps: int) -> None:
    """TRL shuffles its input with torch.randperm and cuts it into steps."""

    def after_trl(rank: int, world: int) -> list[int]:
        given = shard_batch(range(24), steps=steps, processes=Processes(rank, world), seed=3)
        seed_shuffle(3)
        return [given[i] for i in torch.randperm(len(given))]

    def steps_of(rows: list[int]) -> list[set[int]]:
        each = len(rows) // steps
        return [set(rows[i * each : (i + 1) * each]) for i in range(steps)]

    alone = steps_of(after_trl(0, 1))
    shares = [steps_of(after_trl(rank, 3)) for rank in range(3)]
    assert [set().union(*parts) for parts in zip(*shares, strict=True)] == alone
    assert set().union(*alone) == set(range(24))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
