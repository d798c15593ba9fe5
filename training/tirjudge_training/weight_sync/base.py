"""The interface of a sampler that follows the trainer, and the folder through which weights may pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Literal, Protocol

from tirjudge.generation import Generator
from tirjudge_training.distributed.checkpoints import on_the_first
from tirjudge_training.distributed.processes import Processes

Sampler = Literal["transformers", "vllm", "vllm-server"]
"""The values of `rl.generator`."""


class PolicyGenerator(Generator, Protocol):
    """A generator that reports its working time and numeric precision."""

    @property
    def busy_seconds(self) -> float:
        """Wall seconds since the start in which tokens were computed or waited for."""

    @property
    def precision(self) -> str:
        """The type of matrix products: `bfloat16`, ..."""


class Policy(Protocol):
    """The sampler of a training run."""

    @property
    def generator(self) -> PolicyGenerator:
        """The generator with the weights of the last `refresh`."""

    async def refresh(self) -> None:
        """Load the trainer's current weights. Raises GeneratorFailed."""

    async def rest(self) -> None:
        """Release the memory that only sampling needs, until the next `refresh`."""

    async def close(self) -> None:
        """Release engine, memory and temporary files."""


MEMORY = Path("/dev/shm")
"""A file system in memory, which passes weights without writing them to a disk."""


def parent_folder(parent: Path | None) -> Path:
    """Return where to create a folder of weights: `parent`, or else in memory if the machine has /dev/shm."""
    return parent or (MEMORY if MEMORY.is_dir() else Path(gettempdir()))


def free_bytes(parent: Path | None) -> int:
    """Return the free bytes at that place."""
    return disk_usage(parent_folder(parent)).free


class WeightFolder:
    """A model folder that the first process writes; each of several `processes` makes the same calls."""

    def __init__(self, model: Any, tokenizer: Any, processes: Processes, parent: Path | None = None) -> None:
        """Create the folder inside `parent`, by default in memory. Raises OSError if that fails."""
        self._model, self._processes = model, processes
        self._files = ExitStack()
        self.path = Path(processes.first(lambda: self._create(tokenizer, parent)))

    @contextmanager
    def written(self) -> Iterator[Path]:
        """Write the current weights and yield the folder; delete them once every process has left the block.

        A killed run would else leave weights in memory.
        """
        # Collective: with sharded weights every process takes part in gathering them.
        weights = on_the_first(self._model, self._processes)
        self._processes.first(lambda: self._model.save_pretrained(self.path, state_dict=weights))
        yield self.path
        self._processes.every("read")  # a barrier: the others may still be reading
        if self._processes.rank == 0:
            for file in self.path.glob("*.safetensors"):
                file.unlink()

    def close(self) -> None:
        self._files.close()

    def _create(self, tokenizer: Any, parent: Path | None) -> str:
        folder = self._files.enter_context(TemporaryDirectory(prefix="tirjudge-", dir=parent_folder(parent)))
        tokenizer.save_pretrained(folder)
        return folder


def can_stream(model: Any, engine: Mapping[str, Any]) -> bool:
    """Return True if an engine with these arguments can take the model's tensors one by one.

    Impossible for an engine on several GPUs, which do not share the trainer's memory, or if transformers
    stores weights in another form than model files do, as for mixtures of experts.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter

    alone = engine.get("tensor_parallel_size", 1) == engine.get("pipeline_parallel_size", 1) == 1
    return alone and not any(
        isinstance(rule, WeightConverter) for rule in get_model_conversion_mapping(model)
    )
