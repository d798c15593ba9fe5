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
from tirjudge_training.sft import Sample, SftConfig, train_sft


@pytest.mark.parametrize(("writer", "resumes"), [("FSDP", "FSDP"), ("FSDP", ""), ("", "FSDP")])
def test_a_run_resumes_only_from_an_optimizer_state_that_it_can_load(
    writer: str, resumes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers would start with a fresh optimizer state and report nothing."""
    checkpoint = tmp_path / "checkpoint-5"
    checkpoint.mkdir()
    monkeypatch.setenv("ACCELERATE_USE_FSDP", str(writer == "FSDP").lower())
    checkpoints.mark(checkpoint)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", str(resumes == "FSDP").lower())
    if writer == resumes:
        assert checkpoints.latest(tmp_path) == checkpoint
    else:
        with pytest.raises(IncompatibleCheckpoint, match=re.escape(str(checkpoint))):
            checkpoints.latest(tmp_path)
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
