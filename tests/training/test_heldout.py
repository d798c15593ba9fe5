"""Held-out numbers against counts made by hand, and the selection of a validated step of a training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.training.conftest import ENVIRONMENTS, source
from tests.training.stages.test_rejection import Tasks
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import read_lines
from tirjudge_training.distributed.checkpoints import marked, step_of
from tirjudge_training.heldout import (
    SNAPSHOTS,
    VALIDATION,
    Answer,
    ValidationConfig,
    best_steps,
    lines,
    measure,
    summary,
)
from tirjudge_training.rl.config import RlConfig
from tirjudge_training.rl.rollout_engine import RolloutConfig
from tirjudge_training.stages.base import Run
from tirjudge_training.stages.best_step import Selection
from tirjudge_training.stages.reinforcement import Reinforcement


def one(family: str, correct: bool | None, *, calls: int = 1, errors: int = 0) -> Answer:
    return Answer(
        format="tir-pairwise",
        family=family,
        domain="safety" if family == "starts" else "",
        correct=correct,
        reward=None if correct is None else float(correct),
        verdicts=int(correct is not None),
        views=1,
        calls=calls,
        ran=calls,
        errors=errors,
    )


ANSWERS = [
    one("ends", True),
    one("ends", False, calls=2, errors=1),
    one("starts", True, calls=0),
    one("starts", None, calls=3, errors=3),
]


def test_accuracy_is_over_scored_answers() -> None:
    found = summary(ANSWERS)["tir-pairwise"]
    assert (found["accuracy"]["count"], found["accuracy"]["n"], found["unscored"]) == (2, 3, 1)
    assert (round(found["accuracy"]["low"], 3), round(found["accuracy"]["high"], 3)) == (0.208, 0.939)
    assert found["calls_per_verdict"] == 1.0
    assert (found["program_errors"]["count"], found["program_errors"]["n"]) == (1, 3)
    assert found["families"]["starts"]["accuracy"]["n"] == 1
    assert found["families"]["ends"]["accuracy"]["rate"] == 0.5
    assert found["domains"]["safety"]["accuracy"]["count"] == 1


WEIGHTS = "model.safetensors"
CONFIG = RlConfig(
    steps=5,
    groups=3,
    samples=2,
    micro_batch=2,
    learning_rate=3e-3,
    beta=0.0,
    max_tokens=60,
    filter="none",
    replacement_rounds=0,
    checkpoint_every=1,
    keep_checkpoints=9,
)
VALIDATED = ValidationConfig(n=12, every=2, keep=2)
LIMITS = RolloutConfig(max_tokens=120)


@pytest.fixture(scope="module")
def run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(tmp_path_factory.mktemp("run"), str(tiny_model), Tasks(), lambda line: None)
    train(run)
    return run


def train(run: Run) -> None:
    stage = Reinforcement(name="rl", seed=1, config=CONFIG, validation=VALIDATED, answers=LIMITS)
    with RunFolder(run.path / stage.name) as folder:
        stage.work(folder, run)


def validated(run: Run) -> dict[int, int]:
    return {step: right for step, (right, _) in counted(run).items()}


def counted(run: Run) -> dict[int, tuple[int, int]]:
    return {row["step"]: (row["correct"], row["n"]) for row in read_lines(run.path / "rl" / VALIDATION)}


@pytest.mark.slow
def test_every_second_step_and_the_last_are_validated_as_their_checkpoints_are(run: Run) -> None:
    """A measurement of the checkpoint in float32, in an engine of its own, finds the same right answers."""
    tasks = [source(1, 0, position) for position in range(12)]
    found = {
        step_of(folder): sum(
            one["accuracy"]["count"] for one in measure(str(folder), tasks, ENVIRONMENTS, LIMITS).values()
        )
        for folder in marked(run.path / "rl" / "checkpoints")
        if step_of(folder) in (2, 4, 5)
    }
    assert validated(run) == found
    assert any(found.values()), "the model knows nothing, so nothing is shown"


@pytest.mark.slow
def test_only_the_best_weights_are_kept_in_bfloat16(run: Run) -> None:
    best = best_steps(counted(run))[:2]
    folders = {folder.name: folder for folder in (run.path / "rl" / SNAPSHOTS).iterdir()}
    assert folders.keys() == {f"step-{step}" for step in best}
    for step in best:
        kept = load_file(folders[f"step-{step}"] / WEIGHTS)
        trained = load_file(run.path / "rl" / "checkpoints" / f"checkpoint-{step}" / WEIGHTS)
        assert all(kept[name].equal(trained[name].to(torch.bfloat16)) for name in kept)
        assert not list(folders[f"step-{step}"].glob("optimizer*"))


def test_the_best_step_is_selected(run: Run) -> None:
    stage = Selection(name="select", stage="rl", candidates=3)
    with RunFolder(run.path / stage.name) as folder:
        result = stage.work(folder, run)
    counts = validated(run)
    assert result["correct"] == {str(step): count for step, count in counts.items()}
    assert result["best"] == max(counts, key=lambda step: (counts[step], step))
    kept = load_file(run.path / "select" / "model" / WEIGHTS)
    snapshot = load_file(run.path / "rl" / SNAPSHOTS / f"step-{result['best']}" / WEIGHTS)
    assert all(kept[name].equal(snapshot[name]) for name in snapshot)


def test_a_resumed_stage_validates_only_steps_that_are_missing(run: Run) -> None:
    """A kill after the snapshot and before its line, and one that left half a snapshot."""
    written = (run.path / "rl" / VALIDATION).read_bytes()
    counts, (*before, _) = validated(run), written.splitlines(keepends=True)
    (run.path / "rl" / VALIDATION).write_bytes(b"".join(before))
    (run.path / "rl" / SNAPSHOTS / "partial-5").mkdir()
    train(run)
    assert validated(run) == counts
    names = {folder.name for folder in (run.path / "rl" / SNAPSHOTS).iterdir()}
    assert names == {f"step-{step}" for step in best_steps(counted(run))[:2]}


def test_a_failed_sandbox_says_nothing_about_a_step() -> None:
    assert best_steps({1: (6, 10), 2: (5, 6), 3: (0, 0), 4: (6, 10)}) == [2, 4, 1, 3]
    (line,) = lines(summary([one("ends", None)]))
    assert line.endswith("; no verdict")
