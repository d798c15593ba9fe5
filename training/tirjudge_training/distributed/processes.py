"""The processes of one training run: how they divide work, exchange values and write the rows of one file."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.json_lines import JsonLines, JsonObject, read_lines

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""The time that a process waits for another that works alone; long, since torchrun ends all if one dies."""


class FirstFailed(RuntimeError):
    """Work of the first process failed, and that process reports the reason."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The run's processes, seen from one process. All processes make the same calls in the same order."""

    rank: int = 0
    """0 is the first process, which writes all files but other processes' rows and shards."""
    world: int = 1
    group: Any = None
    """The process group of exchanges; None is the default group."""

    @classmethod
    def launched(cls) -> Processes:
        """Return the processes that `torchrun` or `accelerate launch` started; one without a launcher."""
        if launched_processes() == 1:
            return cls()
        import torch
        from accelerate import PartialState

        # PartialState opens the process group, whose default timeout is a few minutes.
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
        atexit.register(_leave_groups)
        return cls(state.process_index, state.num_processes)

    @property
    def share_weights(self) -> bool:
        """True if each process holds only a shard of the trained model (FSDP)."""
        return Sharding.launched() is Sharding.FSDP

    def first(self, work: Callable[[], T]) -> T:
        """Run `work` in the first process and share the result. Raises its error there, else FirstFailed."""
        if self.world == 1:
            return work()
        result: list[Any] = [None]
        failure: Exception | None = None
        if self.rank == 0:
            try:
                result = [work()]
            except Exception as error:
                failure = error
        # All processes take part even if the first failed: else the others would wait for ever.
        done, result = self.every((failure is None, result))[0]
        if failure is not None:
            raise failure
        if not done:
            raise FirstFailed("the first process failed: see its message")
        return result[0]

    def every(self, value: T) -> list[T]:
        """Return the values of all processes, by rank; they are exchanged pickled."""
        if self.world == 1:
            return [value]
        if self.group is not None:
            import torch

            values: list[Any] = [None] * self.world
            torch.distributed.all_gather_object(values, value, group=self.group)
            return values
        from accelerate.utils import gather_object

        return gather_object([value])  # accelerate concatenates lists

    def apart(self) -> Processes:
        """Return the same processes with exchanges of their own, for a thread that works next to training.

        All processes must make this call. Collective operations of one group must come in the same order in
        every process, which two threads cannot ensure.
        """
        if self.world == 1:
            return self
        import torch

        return replace(self, group=torch.distributed.new_group(backend="gloo", timeout=PATIENCE))

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's share of `items`, which must be the same in every process."""
        return items[self.rank :: self.world]

    def folder(self, path: Path) -> RunFolder:
        """Return the run folder at `path`: writable in the first process, read-only in the others."""
        # Only one process may hold the lock of a folder.
        return RunFolder(path) if self.rank == 0 else ReadOnlyRunFolder(path)


def launched_processes() -> int:
    """Return the number of processes of this launch, without joining them; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def _leave_groups() -> None:
    """Close all process groups, whose threads could else abort a process after its work.

    A thread of Gloo may still hold a tensor of the last exchange, and needs the interpreter to drop it
    (https://github.com/pytorch/pytorch/pull/179291).
    """
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


ALONE = Processes()


def cpus_of_this_process() -> int:
    """Return the CPUs that this process may keep busy: its share of the CPUs of the machine's processes.

    A launcher starts several processes on one machine and does not divide the CPUs among them.
    """
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, len(os.sched_getaffinity(0)) // processes)


class ReadOnlyRunFolder(RunFolder):
    """A run folder that another process writes: readable, not locked, and writes do nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        pass

    def write(self, name: str, content: str | bytes) -> None:
        pass

    @contextmanager
    def rewrite(self, name: str) -> Iterator[BinaryIO]:
        with Path(os.devnull).open("wb") as file:
            yield file

    def close(self) -> None:
        pass


class Sharding(StrEnum):
    """The part of weights, gradients and Adam's moments that each process holds."""

    NONE = "plain processes"
    """All weights (DDP)."""
    FSDP = "FSDP"
    """A shard of all weights."""

    @classmethod
    def launched(cls) -> Sharding:
        """Return the sharding that the launcher configured through its environment variables."""
        return cls.FSDP if os.environ.get("ACCELERATE_USE_FSDP") == "true" else cls.NONE


class SharedRows:
    """The rows of a stage whose items are divided among the processes; `index` in a row is the item's index.

    The first process appends to the file itself, other processes to `NAME.1.jsonl`, ..., so that no process
    waits and a killed run loses no row. A resumed run may have another number of processes.
    """

    def __init__(self, folder: RunFolder, name: str, processes: Processes = ALONE) -> None:
        self._folder, self._name, self._processes = folder, name, processes
        self._own: JsonLines | None = None

    def left(self, items: Sequence[T]) -> list[tuple[int, T]]:
        """Return the numbered items that have no row yet; the same in every process, which all must call."""
        done = self._processes.first(lambda: {row["index"] for row in self.read()})
        return [(index, item) for index, item in enumerate(items) if index not in done]

    def read(self) -> Iterator[JsonObject]:
        """Read the rows of all processes."""
        for path in self._files():
            yield from read_lines(path)

    def append(self, row: JsonObject) -> None:
        """Append a row; returns once the row is on the disk."""
        if self._processes.rank == 0:
            self._folder.append(self._name, row)
            return
        if self._own is None:
            self._own = JsonLines(self._path(f".{self._processes.rank}"))
        self._own.append(row)

    def merge(self) -> None:
        """Put all rows into one file, in the order of items. Every process must make this call."""
        if self._own is not None:
            self._own.close()
            self._own = None
        self._processes.every(None)  # a barrier: the others may still be writing
        self._processes.first(self._merge)

    def _merge(self) -> None:
        # Rows have whole dialogues, so that only their places are kept in memory.
        places: dict[int, tuple[Path, int]] = {}
        whole, *others = self._files()
        for path in (whole, *others):
            for start, line in _lines(path):
                places.setdefault(json.loads(line)["index"], (path, start))
        if not others and list(places) == sorted(places):
            return
        with ExitStack() as stack:
            files = {path: stack.enter_context(path.open("rb")) for path in {p for p, _ in places.values()}}
            merged = stack.enter_context(self._folder.rewrite(self._name))
            for index in sorted(places):
                path, start = places[index]
                files[path].seek(start)
                merged.write(files[path].readline())
        # After a kill at this point, the next run finds rows twice and merges again.
        for path in others:
            path.unlink()

    def _files(self) -> list[Path]:
        whole = self._path("")
        return [whole, *sorted(whole.parent.glob(f"{whole.stem}.[0-9]*.jsonl"))]

    def _path(self, suffix: str) -> Path:
        path = self._folder.path / self._name
        return path.with_name(f"{path.stem}{suffix}{path.suffix}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the complete lines of a file with their offsets; none if there is no file."""
    if not path.exists():
        return
    start = 0
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            yield start, line
            start += len(line)
