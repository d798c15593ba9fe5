"""Files that form one run: several files or a glob, standard input, and their rows."""

from __future__ import annotations

import glob
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tirjudge.data.rows import STANDARD_INPUT, BadRow, Row, RowFile, open_file

_STANDARD_INPUT = "standard input"


class RunFiles:
    """The rows of a run's files, read from the start at each iteration.

    A path may be a glob, and `-` is standard input. Pipes are copied to a temporary file first, because a run
    is read once for each protocol. Raises ValueError for a glob that matches nothing, OSError for a missing
    file.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(found for path in paths for found in _matches(path))
        self._copies = {path: _copied(path) for path in self.paths if _is_pipe(path)}
        names = [path.name for path in self.paths]
        self._distinct = names if len(set(names)) == len(names) else list(map(str, self.paths))

    @property
    def name(self) -> str:
        """The name of the run for messages and tables."""
        first = _name(self.paths[0])
        return first if len(self.paths) == 1 else f"{first} and {len(self.paths) - 1} more"

    def __iter__(self) -> Iterator[Row]:
        for path, prefix in zip(self.paths, self._distinct, strict=True):
            for row in self._file(path):
                if len(self.paths) == 1:
                    yield row
                else:
                    # Rows without an id of their own are numbered in each file.
                    yield Row(row.where, f"{prefix}/{row.default_id}", row.fields)

    def _file(self, path: Path) -> Iterator[Row]:
        """Yield the rows of JSON lines or of a table, or the one object that is the whole file."""
        copy = self._copies.get(path)
        place, name = (path, str(path)) if copy is None else (Path(copy.name), _name(path))
        whole = _object(place, name)
        if whole is not None:
            yield Row(name, "item-1", whole)
            return
        for row in RowFile(str(place), name=name):
            if isinstance(row, BadRow):
                raise ValueError(f"{row.where}: {row.reason}")
            yield row


class SwappedFiles:
    """The rows of a run, each with the verdict of the row in the same place of a second file.

    Raises ValueError if the second file has more or fewer rows.
    """

    def __init__(
        self,
        files: RunFiles,
        swapped: RunFiles,
        merge: Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        """`merge` returns the fields of a row with the verdict of the other one."""
        self.paths, self.name = files.paths, files.name
        self._files, self._swapped, self._merge = files, swapped, merge

    def __iter__(self) -> Iterator[Row]:
        for number, (row, other) in enumerate(zip_longest(self._files, self._swapped), 1):
            if row is None or other is None:
                longer, shorter = (
                    (self._files, self._swapped) if other is None else (self._swapped, self._files)
                )
                raise ValueError(
                    f"{longer.paths[0]} has more than the {number - 1} rows of {shorter.paths[0]}"
                )
            try:
                yield Row(row.where, row.default_id, self._merge(row.fields, other.fields))
            except ValueError as error:
                raise ValueError(f"{other.where}: {error}") from None


def _matches(path: Path) -> list[Path]:
    """Return the files of a glob, sorted; an existing file is no glob, whatever its name."""
    text = str(path)
    if text == STANDARD_INPUT or path.exists() or not glob.has_magic(text):
        return [path]
    found = sorted(map(Path, glob.glob(text, recursive=True)))
    if not found:
        raise ValueError(f"no file matches {text}")
    return found


def _is_pipe(path: Path) -> bool:
    return str(path) == STANDARD_INPUT or path.is_fifo()


def _copied(path: Path) -> Any:
    copy = tempfile.NamedTemporaryFile(prefix="tirjudge-")  # noqa: SIM115 (closed with the run)
    source = 0 if str(path) == STANDARD_INPUT else path
    with open(source, "rb", closefd=source != 0) as pipe:
        shutil.copyfileobj(pipe, copy)
    copy.flush()
    return copy


def _name(path: Path) -> str:
    return _STANDARD_INPUT if str(path) == STANDARD_INPUT else path.name


def _object(path: Path, name: str) -> Mapping[str, Any] | None:
    """Return the content of a file that is one JSON object over several lines; None for other files."""
    with open_file(path, name) as file:
        first = file.readline().strip()
        if not first.startswith(b"{") or first.endswith(b"}"):
            return None
        try:
            value = json.loads(first + file.read())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name}: neither JSON lines nor one JSON object: {error}") from None
    return value if isinstance(value, dict) else None
