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


def marked(folder: Path) -> list[Path]:
    """The marked `checkpoint-N` by rising N; one that a kill cut short is passed over."""
    return sorted((path.parent for path in folder.glob(f"checkpoint-*/{MARK}")), key=step_of)


def latest(folder: Path) -> Path | None:
    """The last of the marked ones, or None."""
    return next(reversed(marked(folder)), None)


def step_of(checkpoint: Path) -> int:
    """The optimizer steps that were done when it was written."""
    return int(checkpoint.name.rpartition("-")[2])
