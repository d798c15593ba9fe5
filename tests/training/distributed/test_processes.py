"""Several processes, started by torchrun on the CPU, train, sample and measure exactly as one does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import small_rl, source, train_and_save
from tests.training.forked import in_two_processes
from tests.training.stages.test_rejection import Tasks as SomeTasks
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.distributed.processes import Processes, SharedRows
from tirjudge_training.heldout import HeldoutConfig
from tirjudge_training.rl.dynamic_sampling import FormattedTask
from tirjudge_training.rl.packing import seed_shuffle, shard_batch
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.run.run import _done as run_stage
from tirjudge_training.stages.base import Run, Stage
from tirjudge_training.stages.best_step import Measurement, Selection
from tirjudge_training.stages.rejection import Rejection, RejectionConfig
from tirjudge_training.stages.sft import Answering, AnswersConfig

CONFIG = small_rl(optimizer_steps=2, micro_batch=2, length_buckets=3, entropy_bonus=0.01)
LOSSES = ("dapo", "sequence")
ROLLOUT = RolloutConfig(max_tokens=120)
STAGES: tuple[Stage, ...] = (
    Rejection(name="rejection", seed=5, config=RejectionConfig(samples=2), rollout=ROLLOUT),
    Measurement(name="heldout", config=HeldoutConfig(n=11), rollout=ROLLOUT),
    Selection(name="select", stage="rl", candidates=2),
    Answering(name="answers", config=AnswersConfig(text="<preference>{letter}</preference>", prompts=5)),
)
FILES = ("rejection/samples.jsonl", "heldout/answers.jsonl", "answers/samples.jsonl")
KILLED_AT = 3
"""Rows of the first stage after which the second process dies."""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def main(start: Path, folder: Path, how: str = "to the end") -> None:
    """Run every stage and every loss in all launched processes; the first loss of several is interrupted."""
    processes = Processes.launched()
    if how == "killed" and processes.rank == 1:
        SharedRows.append = dying_append
    run = Run(folder, str(start), Tasks(), lambda line: None, processes=processes)
    for stage in STAGES:
        run_stage(stage, run, "stage")
    for loss in LOSSES:
        config = CONFIG.model_copy(update={"loss": loss})
        if processes.world > 1 and loss == "dapo":
            with pytest.raises(Interrupted):
                train_and_save(start, folder / loss, config, say=interrupt, processes=processes)
        train_and_save(start, folder / loss, config, processes=processes)


class Tasks(SomeTasks):
    """Pairs and single responses to sample on and to measure, and pairs alone to answer."""

    def prompts(self, n: int | None, seed: int) -> list[FormattedTask]:
        tasks = super().prompts(24, seed)
        return tasks if n is None else [task for task in tasks if task.format == "tir-pairwise"][:n]

    def heldout(self, n: int, seed: int) -> list[FormattedTask]:
        return [source(2, 0, position) for position in range(n)]


def dying_append(rows: Any, row: Any, append: Any = SharedRows.append) -> None:
    append(rows, row)
    if sum(1 for _ in rows.read()) >= KILLED_AT:
        os.kill(os.getpid(), signal.SIGKILL)


class Interrupted(Exception):
    pass


def interrupt(line: str) -> None:
    """Interrupt between the checkpoints of the first and the second step."""
    if line.startswith("step 2 of 2: mean"):
        raise Interrupted


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(read_lines(folder / name))


def timeless(value: Any) -> Any:
    """Return a value without the times that it took."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if not key.endswith("seconds")}
    return [timeless(one) for one in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def runs(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Run the same in this process and in two, which torchrun starts at first, when one of them is killed.

    The third folder is that of the killed run, in which the stages end in this process.
    """
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for folder in (one, two):
        shutil.copytree(tiny_model, folder / "rl" / "model")
    main(tiny_model, one)
    command = [sys.executable, *TORCHRUN, __file__, str(tiny_model), str(two), "killed"]
    killed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "SIGKILL" in killed.stderr or "exitcode  : -9" in killed.stderr, killed.stderr[-2000:]
    shares = [
        {row["index"] for row in rows(two / "rejection", f"samples{rank}.jsonl")} for rank in ("", ".1")
    ]
    assert shares[0].isdisjoint(shares[1]), "each prompt is sampled once"
    assert len(shares[1]) > 0
    left = tmp_path_factory.mktemp("left") / "run"
    shutil.copytree(two, left)
    in_two_processes(main, tiny_model, two, folder=two.parent)
    alone = Run(left, str(tiny_model), Tasks(), lambda line: None)
    for stage in STAGES:
        run_stage(stage, alone, "stage")
    return one, two, left


@pytest.mark.slow
def test_stages_of_two_processes_leave_the_files_of_one_also_when_killed(
    runs: tuple[Path, Path, Path],
) -> None:
    """Rows are those of one process, in the same order, whoever ends the killed run."""
    one, *others = runs
    expected = {name: timeless(rows(one, name)) for name in FILES}
    assert [len(found) for found in expected.values()] == [24, 11, 5]
    for folder in others:
        for name, found in expected.items():
            assert timeless(rows(folder, name)) == found, name
            assert list(range(len(found))) == [row["index"] for row in found]
        for stage in STAGES:
            done, wanted = ((at / stage.name / "done.json").read_text() for at in (folder, one))
            assert done == wanted, stage.name
        assert not list(folder.glob("*/samples.1.jsonl")) + list(folder.glob("*/answers*.1.jsonl"))
        best = load_file(folder / "select" / "model" / "model.safetensors")
        assert all(
            best[name].equal(w) for name, w in load_file(one / "select/model/model.safetensors").items()
        )


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_two_processes_give_the_loss_of_one(loss: str, runs: tuple[Path, Path, Path]) -> None:
    """Rollouts, filter, replacements and optimizer steps agree, also resumed; only the first writes."""
    one, two = (rows(folder / loss, "metrics.jsonl") for folder in runs[:2])
    assert sum(row["groups/replacement_tasks"] for row in one) > 0, "the case must exercise dynamic sampling"
    assert len(one) == len(two) == CONFIG.steps
    for alone, shared in zip(one, two, strict=True):
        for name in ("loss", "grad_norm", "entropy", "kl", "reward", "groups/dropped", "tools/calls"):
            assert shared[name] == pytest.approx(alone[name], abs=1e-5), name
    rollouts, shared_rollouts = (
        [episode["id"] for episode in rows(folder / loss, "episodes.jsonl")] for folder in runs[:2]
    )
    assert rollouts == shared_rollouts
    alone, shared = (load_file(folder / loss / "model" / "model.safetensors") for folder in runs[:2])
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


def test_only_the_first_process_writes_a_run_folder(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"index": 0}\n')
    with Processes(rank=1, world=2).folder(tmp_path) as run:
        run.append(file.name, {"index": 1})
        run.write(file.name, "")
        with run.rewrite(file.name) as rewritten:
            rewritten.write(b"")
        assert list(run.read(file.name)) == [{"index": 0}]
    assert list(tmp_path.iterdir()) == [file]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
