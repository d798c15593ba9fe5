"""Sources of rows: files, patterns of files, pipes, and datasets of the hub or of a local folder."""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from tirjudge.console_text import first_line
from tirjudge.data.rows import BadRow, Row, RowFile, RowFormat, is_file_name, typed

MIRROR = "TIRJUDGE_HUB_MIRROR"
"""Environment variable: a folder of datasets as `owner/name`, which is searched before the hub."""

_SETTINGS = ".settings.json"
"""The end of the name of the file next to a result file that makes it one."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubRows:
    """One split of a dataset: a hub id (`ScalerLab/JudgeBench`), or a folder with the files of a dataset.

    It is downloaded once, into the hub's cache, and memory-mapped: memory does not grow with the rows. Raises
    ValueError, in one line, if it cannot be loaded, and if it has several splits or configurations and none
    was chosen.
    """

    def __init__(
        self, path: str, config: str | None = None, split: str | None = None, *, file: str | None = None
    ) -> None:
        """`file` selects a file of the dataset, for datasets whose files have different columns."""
        self._rows, split = _load(mirrored(path), config, split, file)
        part = ", ".join(name for name in (config, split, file) if name)
        self.name = f"{path}[{part}]"

    def __iter__(self) -> Iterator[Row]:
        for number, fields in enumerate(self._rows, 1):
            yield Row(f"{self.name}, item {number}", f"item-{number}", typed(fields))

    def count(self) -> int:
        return len(self._rows)

    def is_at(self, path: Path) -> bool:
        """Return False: a dataset is never the result file."""
        return False


def is_dataset(path: str) -> bool:
    """Return True for a dataset: a folder, or a hub id that is not the name of an existing file."""
    if Path(path).exists():
        return Path(path).is_dir()
    return bool(_HUB_ID.fullmatch(path)) and not is_file_name(path)


def split_names(path: str, config: str | None = None) -> list[str]:
    """Return the names of a dataset's splits. Raises ValueError as HubRows does."""
    library, place = datasets_library(path), mirrored(path)
    try:
        return list(library.get_dataset_split_names(place, config))
    except Exception as error:  # the library's errors have no common root
        raise _refusal(path, error) from None


def _refusal(path: str, error: Exception) -> ValueError:
    """Return an error of the library in one line; `path` is what was asked for."""
    # The library says of a file that it cannot read only that an error occurred.
    reason = error.__cause__ if type(error).__name__ == "DatasetGenerationError" else None
    found = f"cannot be loaded as a dataset: {first_line(reason or error)}"
    if not Path(path).is_dir():
        return ValueError(f"{path}: {found}")
    if isinstance(error, FileNotFoundError):
        found = "this folder has no file of rows"
    return ValueError(f"{path}: {found}; name a file, or a quoted pattern of files")


def _load(path: str, config: str | None, split: str | None, file: str | None) -> tuple[Any, str]:
    library = datasets_library(path)
    split = split or ("train" if file else _only(split_names(path, config), path))
    try:
        rows = library.load_dataset(
            path, config, split=split, data_files=file, cache_dir=_cache(library, path)
        )
    except Exception as error:
        raise _refusal(path, error) from None
    return rows, split


def _cache(library: Any, path: str) -> Path | None:
    """Return the cache folder of a local dataset, by its path and its files' state; None for a hub id."""
    # The library's own key may depend on neither, and would then return old rows for changed files.
    folder = Path(path)
    if not folder.is_dir():
        return None
    files = sorted((str(file), file.stat()) for file in folder.resolve().rglob("*") if file.is_file())
    state = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files)
    digest = hashlib.blake2b(state.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Path(library.config.HF_DATASETS_CACHE) / "folders" / digest


def datasets_library(path: str) -> Any:
    """Import the `datasets` library, without progress bars and logs. Raises ValueError if it is missing."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise ValueError(f"{path}: datasets need an extra: pip install 'tirjudge[data]'") from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it logs every attempt at a download
    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # it logs what it raises as well
    return datasets


def mirrored(path: str) -> str:
    """Return the path that a dataset is read from: its folder in the mirror, if there is one, else `path`."""
    mirror = os.environ.get(MIRROR)
    if mirror and _HUB_ID.fullmatch(path) and (Path(mirror) / path).is_dir():
        return str(Path(mirror) / path)
    return path


def _only(splits: list[str], path: str) -> str:
    if len(splits) != 1:
        raise ValueError(
            f"{path} has the splits {', '.join(splits)}: choose one with --split, or name its file"
        )
    return splits[0]


class ShardRows:
    """The rows of all files that match a pattern; a row without an id becomes `FILE:line-7`.

    An unreadable file counts as one bad row; all other files are read. Result files and their companions are
    left out, so that results may lie in the folder of the rows. Raises ValueError if no file matches.
    """

    def __init__(self, pattern: str, format: RowFormat | None = None, encoding: str = "") -> None:
        self.name = pattern
        self._format, self._encoding = format, encoding
        self.notes: list[str] = []
        """Notes on the files, each with the name of the first file concerned."""
        self._root = pattern_folder(pattern)
        paths = sorted(Path(found) for found in glob.glob(pattern, recursive=True))
        self._paths = [path for path in paths if path.is_file() and not _is_result(path)]
        if not self._paths:
            raise ValueError(f"{pattern}: no file matches this pattern")

    def __iter__(self) -> Iterator[Row | BadRow]:
        for path in self._paths:
            name = path.relative_to(self._root)
            try:
                file = RowFile(str(path), self._format, encoding=self._encoding)
                for row in file:
                    yield replace(row, default_id=f"{name}:{row.default_id}") if isinstance(row, Row) else row
                self._note(file.notes, name)
            except (OSError, ValueError) as error:
                yield BadRow(str(path), f"the rest of this file cannot be read: {_without(path, error)}")

    def _note(self, notes: list[str], name: Path) -> None:
        known = [note.partition(": ")[2] for note in self.notes]
        self.notes += [f"{name}: {note}" for note in notes if note not in known]

    def count(self) -> int:
        """Return the number of rows, for which the files are read once; an unreadable file counts as one."""
        return sum(self._count(path) for path in self._paths)

    def is_at(self, path: Path) -> bool:
        """Return True if one of the files is the file at `path`."""
        return any(one.samefile(path) for one in self._paths)

    def _count(self, path: Path) -> int:
        try:
            return RowFile(str(path), self._format, encoding=self._encoding).count() or 0
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
    """Return True for a result file or a companion, whose name begins with the file's name."""
    name = path.name
    beginnings = [name[:end] for end, mark in enumerate(name) if mark == "."]
    return any(path.with_name(one + _SETTINGS).exists() for one in (*beginnings, name))


def _without(path: Path, error: Exception) -> str:
    """Return the first line of an error, without the file's name in front."""
    known = isinstance(error, OSError) and error.strerror
    return known or first_line(error).removeprefix(f"{path}: ")


class RowSource(Protocol):
    """A source of rows, which can be iterated once."""

    name: str
    """The name that messages use."""

    def __iter__(self) -> Iterator[Row | BadRow]: ...

    def count(self) -> int | None:
        """Return the number of rows; None if unknown."""

    def is_at(self, path: Path) -> bool:
        """Return True if these rows are the file at `path`."""


def open_rows(
    path: str,
    format: RowFormat | None = None,
    config: str | None = None,
    split: str | None = None,
    encoding: str = "",
) -> RowSource:
    """Open rows: a file, a pattern of several files, `-`, a folder with a dataset's files, or a hub id.

    An existing path is a file or a folder; any other `owner/name` without the suffix of a file is a hub id.
    `encoding` is that of files. Raises ValueError and OSError, in one line.
    """
    if is_pattern(path):
        if config is not None or split is not None:
            raise ValueError(f"{path}: only datasets have configurations and splits; these are files")
        return ShardRows(path, format, encoding)
    if format is None and is_dataset(path):
        return HubRows(path, config, split)
    if config is not None or split is not None:
        raise ValueError(f"{path}: only datasets have configurations and splits; this is a file")
    return RowFile(path, format, encoding=encoding)
