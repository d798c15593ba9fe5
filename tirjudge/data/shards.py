"""Rows in several files: all that a pattern such as `shards/*.jsonl` matches, in the order of their names."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tirjudge.console_text import first_line
from tirjudge.data.rows import BadRow, Row, RowFile, RowFormat

_SETTINGS = ".settings.json"
"""The end of the name of the file next to a result file that makes it one."""


class ShardRows:
    """The rows of the files that a pattern matches; a row without an id of its own is `FILE:line-7`.

    A file that cannot be read is one bad row, and the others are read. Result files, and the files next to
    them, are left out, so that results may lie in the folder of the rows. Raises ValueError if no file
    matches.
    """

    def __init__(self, pattern: str, format: RowFormat | None = None) -> None:
        self.name = pattern
        self._format = format
        self._root = pattern_folder(pattern)
        paths = sorted(Path(found) for found in glob.glob(pattern, recursive=True))
        self._paths = [path for path in paths if path.is_file() and not _is_result(path)]
        if not self._paths:
            raise ValueError(f"{pattern}: no file matches this pattern")

    def __iter__(self) -> Iterator[Row | BadRow]:
        for path in self._paths:
            name = path.relative_to(self._root)
            try:
                for row in RowFile(str(path), self._format):
                    yield replace(row, default_id=f"{name}:{row.default_id}") if isinstance(row, Row) else row
            except (OSError, ValueError) as error:
                yield BadRow(str(path), f"the rest of this file cannot be read: {_without(path, error)}")

    def count(self) -> int:
        """Return the number of rows, for which the files are read once; an unreadable file counts as one."""
        return sum(self._count(path) for path in self._paths)

    def is_at(self, path: Path) -> bool:
        """Return True if one of the files is the file at `path`."""
        return any(one.samefile(path) for one in self._paths)

    def _count(self, path: Path) -> int:
        try:
            return RowFile(str(path), self._format).count() or 0
        except (OSError, ValueError):
            return 1


def is_pattern(path: str) -> bool:
    """Return True for a pattern of file names; a file of that very name is a file."""
    return glob.has_magic(path) and not Path(path).exists()


def pattern_folder(pattern: str) -> Path:
    """Return the folder in front of a pattern's first special character."""
    parts = Path(pattern).parts
    fixed = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:fixed])


def _is_result(path: Path) -> bool:
    """Return True for a result file and its companions, whose names begin with its own."""
    name = path.name
    beginnings = [name[:end] for end, mark in enumerate(name) if mark == "."]
    return any(path.with_name(one + _SETTINGS).exists() for one in (*beginnings, name))


def _without(path: Path, error: Exception) -> str:
    """Return the first line of an error, without the file's name in front."""
    known = isinstance(error, OSError) and error.strerror
    return known or first_line(error).removeprefix(f"{path}: ")
