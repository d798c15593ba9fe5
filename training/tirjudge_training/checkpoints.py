"""Checkpoints that a kill cannot spoil: one counts only when it was marked after its last byte."""

from __future__ import annotations

from pathlib import Path

from tirjudge_training.processes import ALONE, Processes

MARK = "complete"


def mark(checkpoint: Path, processes: Processes = ALONE) -> None:
    """Declare a checkpoint whole; every process calls it after it has written all of its own."""
    processes.every(None)
    if processes.rank == 0:
        (checkpoint / MARK).touch()


def latest(folder: Path) -> Path | None:
    """The marked `checkpoint-N` with the highest N, or None; one that a kill cut short is passed over."""
    found = {
        int(path.parent.name.rpartition("-")[2]): path.parent for path in folder.glob(f"checkpoint-*/{MARK}")
    }
    return found[max(found)] if found else None


def step_of(checkpoint: Path) -> int:
    """The optimizer steps that were done when it was written."""
    return int(checkpoint.name.rpartition("-")[2])
