"""The processes of one training run: what the first does alone, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from tirjudge.storage.run_folder import RunFolder
from tirjudge_training.sharing import Sharing

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""How long a process waits for another that works alone; torchrun ends those whose fellow has died."""


class FirstFailed(RuntimeError):
    """What the first process did alone went wrong; it says so itself."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The run's processes, seen from one of them. Every process makes the same calls in the same order."""

    rank: int = 0
    """0 is the first, which alone writes."""
    world: int = 1

    @classmethod
    def launched(cls) -> Processes:
        """Those that `torchrun` or `accelerate launch` started; one if there was no launcher."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        import torch
        from accelerate import PartialState

        state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
        return cls(state.process_index, state.num_processes)

    @property
    def share_weights(self) -> bool:
        """Whether each holds a part of the model that is trained (FSDP), and not all of it."""
        return self.world > 1 and Sharing.launched() is Sharing.FSDP

    def first(self, work: Callable[[], T]) -> T:
        """The first process works, and all get the result. Raises its error there, FirstFailed elsewhere."""
        if self.world == 1:
            return work()
        result: list[Any] = [None]
        failure: Exception | None = None
        if self.rank == 0:
            try:
                result = [work()]
            except Exception as error:
                failure = error
        done, result = self.every((failure is None, result))[0]
        if failure is not None:
            raise failure
        if not done:
            raise FirstFailed("the first process failed")
        return result[0]

    def every(self, value: T) -> list[T]:
        """The value of each process, by rank; values travel pickled."""
        if self.world == 1:
            return [value]
        from accelerate.utils import gather_object

        return gather_object([value])

    def deal(self, items: Sequence[T]) -> Sequence[T]:
        """This process's share of `items`, of which every process holds the same."""
        return items[self.rank :: self.world]

    def collect(self, share: Sequence[T]) -> list[T]:
        """The reverse: all items in their old order, from the shares of all processes."""
        shares = self.every(share)
        return [shares[i % self.world][i // self.world] for i in range(sum(map(len, shares)))]

    def folder(self, path: Path) -> RunFolder:
        """The run folder at `path`, for the first process to write and for the others to look at."""
        return RunFolder(path) if self.rank == 0 else Onlooker(path)


ALONE = Processes()


class Onlooker(RunFolder):
    """A run folder that another process of the run writes: read, never locked, and writes are no-ops."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        pass

    def write(self, name: str, content: str | bytes) -> None:
        pass

    def close(self) -> None:
        pass
