"""Rows of one JSON lines file that all processes of a run write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from tirjudge.storage.run_folder import JsonLines, JsonObject, RunFolder, read_lines
from tirjudge_training.distributed.processes import ALONE, Processes

T = TypeVar("T")


class SharedRows:
    """The rows of a stage whose items are divided among the processes; a row's `index` is that of its item.

    The first process appends to the file itself, the others to `NAME.1.jsonl`, ..., so that no process waits
    for another and a killed run loses no row. A resumed run may have another number of processes.
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
        """Append a row; it is on the disk when this returns."""
        if self._processes.rank == 0:
            self._folder.append(self._name, row)
            return
        if self._own is None:
            self._own = JsonLines(self._path(f".{self._processes.rank}"))
        self._own.append(row)

    def merge(self) -> None:
        """Put all rows into the one file, in the order of their items. Every process must make this call."""
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
        # A run that is killed before this finds the same rows twice, and merges them again.
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
