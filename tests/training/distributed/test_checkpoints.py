"""A run resumes from its last complete checkpoint, whose optimizer state its processes can load."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tirjudge.storage.run_folder import RunFolder
from tirjudge_training import sft
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import IncompatibleCheckpoint
from tirjudge_training.distributed.processes import Processes
from tirjudge_training.sft import Sample, SftConfig, train_sft


class Launched(Processes):
    """The first of `world` processes, without the others."""

    def every(self, value: object) -> list[object]:
        return [value]


def launched(monkeypatch: pytest.MonkeyPatch, by: str, world: int) -> Processes:
    for name in ("FSDP", "DEEPSPEED"):
        monkeypatch.setenv(f"ACCELERATE_USE_{name}", str(name == by).lower())
    return Launched(0, world)


@pytest.mark.parametrize(
    ("writer", "resumes", "conflict"),
    [
        (("", 2), ("", 1), None),
        (("FSDP", 8), ("FSDP", 4), None),
        (("DEEPSPEED", 2), ("DEEPSPEED", 2), None),
        (("FSDP", 2), ("", 2), "FSDP, and plain processes"),
        (("", 1), ("DEEPSPEED", 2), "plain processes, and DeepSpeed in 2 processes"),
        (("DEEPSPEED", 2), ("", 1), "DeepSpeed in 2 processes, and plain processes"),
        (("DEEPSPEED", 2), ("DEEPSPEED", 4), "DeepSpeed in 2 processes, and DeepSpeed in 4 processes"),
    ],
)
def test_a_run_resumes_only_from_an_optimizer_state_that_it_can_load(
    writer: tuple[str, int],
    resumes: tuple[str, int],
    conflict: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """transformers would start with a fresh optimizer state and report nothing."""
    checkpoint = tmp_path / "checkpoint-5"
    checkpoint.mkdir()
    checkpoints.mark(checkpoint, launched(monkeypatch, *writer))
    processes = launched(monkeypatch, *resumes)
    if conflict is None:
        assert checkpoints.latest(tmp_path, processes) == checkpoint
    else:
        line = re.escape(
            f"{checkpoint} was written by {conflict} cannot resume from it: launch the run as before"
        )
        with pytest.raises(IncompatibleCheckpoint, match=f"^{line}$"):
            checkpoints.latest(tmp_path, processes)
    assert checkpoints.marked(tmp_path) == [checkpoint], "any processes may measure its weights"


def test_old_checkpoints_and_what_a_kill_left_of_them_are_deleted(tmp_path: Path) -> None:
    """The one after the last complete one may still be written."""
    for step in (2, 4, 6, 8):
        (tmp_path / f"checkpoint-{step}" / "part").mkdir(parents=True)
        if step in (2, 6):
            checkpoints.mark(tmp_path / f"checkpoint-{step}")
    (tmp_path / checkpoints.APART / "checkpoint-5").mkdir(parents=True)
    checkpoints.drop_old(tmp_path, keep=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-6", "checkpoint-8"]


def test_the_last_checkpoint_stays_until_the_next_is_complete(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that dies before the mark of its second checkpoint resumes from the first."""

    def dies(checkpoint: Path, *rest: object, mark: Callable[..., None] = checkpoints.mark) -> None:
        if checkpoint.name == "checkpoint-2":
            raise RuntimeError("killed")
        mark(checkpoint, *rest)

    monkeypatch.setattr(sft, "KEPT_CHECKPOINTS", 1)
    monkeypatch.setattr(checkpoints, "mark", dies)
    samples = [Sample((1, 2, 3), (-100, 2, 3))] * 4
    config = SftConfig(batch=2, micro_batch=2, checkpoint_every=1)
    with RunFolder(tmp_path) as run, pytest.raises(RuntimeError, match="killed"):
        train_sft(tiny_model, run, config, samples, seed=0, say=lambda line: None)
    saved = checkpoints.latest(tmp_path / "checkpoints")
    assert saved == tmp_path / "checkpoints" / "checkpoint-1"
    assert (saved / "optimizer.pt").exists()
