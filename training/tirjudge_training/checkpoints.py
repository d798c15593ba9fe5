"""Checkpoints that a kill cannot spoil: one counts only when it was marked after its last byte."""

from __future__ import annotations

from pathlib import Path

from tirjudge.storage.run_folder import write_atomically
from tirjudge_training.processes import ALONE, Processes
from tirjudge_training.sharing import Sharing

MARK = "complete"
"""The file that marks a checkpoint, and says who wrote it."""


class WrittenOtherwise(RuntimeError):
    """A checkpoint whose optimizer state these processes cannot read; the text is one line."""


def mark(checkpoint: Path, processes: Processes = ALONE) -> None:
    """Declare a checkpoint whole; every process calls it after it has written all of its own."""
    processes.every(None)
    if processes.rank == 0:
        write_atomically(checkpoint / MARK, _writers(processes))


def marked(folder: Path) -> list[Path]:
    """The marked `checkpoint-N` by rising N; one that a kill cut short is passed over."""
    return sorted((path.parent for path in folder.glob(f"checkpoint-*/{MARK}")), key=step_of)


def latest(folder: Path, processes: Processes = ALONE) -> Path | None:
    """The last of the marked ones, for `processes` to go on from, or None. Raises WrittenOtherwise.

    transformers itself would go on without a word, with Adam's moments and the learning rate as at the start.
    """
    last = next(reversed(marked(folder)), None)
    if last is not None:
        wrote, own = (last / MARK).read_text(encoding="utf-8"), _writers(processes)
        if wrote != own:
            raise WrittenOtherwise(
                f"{last} was written by {wrote}, and {own} cannot go on from it: launch the run as before"
            )
    return last


def step_of(checkpoint: Path) -> int:
    """The optimizer steps that were done when it was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _writers(processes: Processes) -> str:
    """DeepSpeed writes a part of the optimizer's state for each process, the others write all of it."""
    sharing = Sharing.launched()
    return f"{sharing} in {processes.world} processes" if sharing is Sharing.DEEPSPEED else str(sharing)
