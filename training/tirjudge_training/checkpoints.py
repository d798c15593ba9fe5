"""Checkpoints that survive a kill: one counts only if it was marked as complete after its last byte."""

from __future__ import annotations

from pathlib import Path

from tirjudge.storage.run_folder import write_atomically
from tirjudge_training.processes import ALONE, Processes
from tirjudge_training.sharing import Sharing

MARK = "complete"
"""The file that marks a complete checkpoint; it contains how the optimizer state was sharded."""


class WrittenOtherwise(RuntimeError):
    """A checkpoint whose optimizer state these processes cannot load; one line."""


def mark(checkpoint: Path, processes: Processes = ALONE) -> None:
    """Mark a checkpoint as complete; every process calls this after it has written its own files."""
    processes.every(None)  # a barrier: the mark must come after the files of all processes
    if processes.rank == 0:
        write_atomically(checkpoint / MARK, _writers(processes))


def marked(folder: Path) -> list[Path]:
    """Return the complete `checkpoint-N` folders by rising N; interrupted ones are left out."""
    return sorted((path.parent for path in folder.glob(f"checkpoint-*/{MARK}")), key=step_of)


def latest(folder: Path, processes: Processes = ALONE) -> Path | None:
    """Return the last complete checkpoint, or None; raises WrittenOtherwise if `processes` cannot load it.

    transformers itself would resume without a warning, with Adam's moments and the learning rate reset.
    """
    last = next(reversed(marked(folder)), None)
    if last is not None:
        wrote, own = (last / MARK).read_text(encoding="utf-8"), _writers(processes)
        if wrote != own:
            raise WrittenOtherwise(
                f"{last} was written by {wrote}, and {own} cannot resume from it: launch the run as before"
            )
    return last


def step_of(checkpoint: Path) -> int:
    """Return the number of optimizer steps at which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _writers(processes: Processes) -> str:
    """Describe the sharding; for DeepSpeed also the number of processes, since each writes its shard."""
    sharing = Sharing.launched()
    return f"{sharing} in {processes.world} processes" if sharing is Sharing.DEEPSPEED else str(sharing)
