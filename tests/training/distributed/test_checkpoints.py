"""A run resumes only from a checkpoint whose optimizer state its processes can load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import IncompatibleCheckpoint
from tirjudge_training.distributed.processes import Processes


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
