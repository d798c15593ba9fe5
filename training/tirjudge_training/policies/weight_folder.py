"""A folder through which the trainer passes its weights to other processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from tirjudge_training.processes import Processes
from tirjudge_training.weights import on_the_first

MEMORY = Path("/dev/shm")


def place(parent: Path | None) -> Path:
    """Return where to create a folder of weights: `parent`, or else in memory if the machine has /dev/shm."""
    return parent or (MEMORY if MEMORY.is_dir() else Path(gettempdir()))


def room(parent: Path | None) -> int:
    """Return the free bytes at that place."""
    return disk_usage(place(parent)).free


class WeightFolder:
    """A model folder that the first process writes; each of several `processes` makes the same calls."""

    def __init__(self, model: Any, tokenizer: Any, processes: Processes, parent: Path | None = None) -> None:
        """Create the folder inside `parent`, by default in memory. Raises OSError if that fails."""
        self._model, self._processes = model, processes
        self._held = ExitStack()
        self.path = Path(processes.first(lambda: self._made(tokenizer, parent)))

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Write the current weights and yield the folder; delete them once every process has left the block.

        Otherwise a killed run would leave them in memory.
        """
        weights = on_the_first(self._model, self._processes)
        self._processes.first(lambda: self._model.save_pretrained(self.path, state_dict=weights))
        yield self.path
        self._processes.every("read")  # a barrier: the others may still be reading
        if self._processes.rank == 0:
            for file in self.path.glob("*.safetensors"):
                file.unlink()

    def close(self) -> None:
        self._held.close()

    def _made(self, tokenizer: Any, parent: Path | None) -> str:
        folder = self._held.enter_context(TemporaryDirectory(prefix="tirjudge-", dir=place(parent)))
        tokenizer.save_pretrained(folder)
        return folder
