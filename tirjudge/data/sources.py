"""Rows from the Hugging Face hub, or from a folder as it stands there, by the `datasets` library."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tirjudge.console_text import first_line
from tirjudge.data.rows import BadRow, Row, RowFile, RowFormat, is_file_name

MIRROR = "TIRJUDGE_HUB_MIRROR"
"""Environment variable: a folder of data sets as `owner/name`, looked up before the hub is."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubRows:
    """One split of a data set: a hub id (`ScalerLab/JudgeBench`), or a folder with the files of one.

    It is downloaded once, into the hub's cache, and mapped from there: memory does not grow with the rows.
    Raises ValueError, in one line, for what cannot be had, and where several splits or configurations leave
    a choice.
    """

    def __init__(
        self, path: str, config: str | None = None, split: str | None = None, *, file: str | None = None
    ) -> None:
        """`file` is one of the data set's files, read alone: for data sets whose files differ in columns."""
        self._rows, split = _load(mirrored(path), config, split, file)
        part = ", ".join(name for name in (config, split, file) if name)
        self.name = f"{path}[{part}]"

    def __iter__(self) -> Iterator[Row]:
        for number, fields in enumerate(self._rows, 1):
            yield Row(f"{self.name}, item {number}", f"item-{number}", fields)

    def count(self) -> int:
        return len(self._rows)

    def is_at(self, path: Path) -> bool:
        """A result file is none of these."""
        return False


def is_data_set(path: str) -> bool:
    """Whether rows come by the `datasets` library: a folder, or a hub id where no such file exists."""
    if Path(path).exists():
        return Path(path).is_dir()
    return bool(_HUB_ID.fullmatch(path)) and not is_file_name(path)


def split_names(path: str, config: str | None = None) -> list[str]:
    """The splits that a data set has; raises ValueError as HubRows does."""
    library, place = datasets_library(path), mirrored(path)
    try:
        return list(library.get_dataset_split_names(place, config))
    except Exception as error:  # the library's errors have no common root
        raise ValueError(f"{path}: cannot be read as a data set: {first_line(error)}") from None


def _load(path: str, config: str | None, split: str | None, file: str | None) -> tuple[Any, str]:
    library = datasets_library(path)
    split = split or ("train" if file else _only(split_names(path, config), path))
    try:
        rows = library.load_dataset(
            path, config, split=split, data_files=file, cache_dir=_cache(library, path)
        )
    except Exception as error:
        raise ValueError(f"{path}: cannot be read as a data set: {first_line(error)}") from None
    return rows, split


def _cache(library: Any, path: str) -> Path | None:
    """Where a folder is cached, by its place and the state of its files; None leaves it to the library.

    The library's own key may have neither: rows that were made anew would be read as they were before.
    """
    folder = Path(path)
    if not folder.is_dir():
        return None
    files = sorted((str(file), file.stat()) for file in folder.resolve().rglob("*") if file.is_file())
    state = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in files)
    digest = hashlib.blake2b(state.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
    return Path(library.config.HF_DATASETS_CACHE) / "folders" / digest


def datasets_library(path: str) -> Any:
    """The library, made quiet; raises ValueError where it is not installed."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise ValueError(f"{path}: rows of a data set need an extra: pip install 'tirjudge[data]'") from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line for each attempt at a download
    return datasets


def mirrored(path: str) -> str:
    """Where a data set is read from: its folder in the mirror, if there is one, else the path itself."""
    mirror = os.environ.get(MIRROR)
    if mirror and _HUB_ID.fullmatch(path) and (Path(mirror) / path).is_dir():
        return str(Path(mirror) / path)
    return path


def _only(splits: list[str], path: str) -> str:
    if len(splits) != 1:
        raise ValueError(f"{path} has the splits {', '.join(splits)}: choose one with --split")
    return splits[0]


class RowSource(Protocol):
    """Rows, once."""

    name: str
    """As messages name it."""

    def __iter__(self) -> Iterator[Row | BadRow]: ...

    def count(self) -> int | None:
        """How many rows there are; None where nobody knows."""
        ...

    def is_at(self, path: Path) -> bool:
        """Whether these rows are the file at `path`."""
        ...


def open_rows(
    path: str, format: RowFormat | None = None, config: str | None = None, split: str | None = None
) -> RowSource:
    """A file, `-`, a folder with a data set's files, or a hub id; raises ValueError and OSError in one line.

    What exists is taken for what it is; else `owner/name` without the suffix of a file is a hub id.
    """
    if format is None and is_data_set(path):
        return HubRows(path, config, split)
    if config is not None or split is not None:
        raise ValueError(f"{path}: only a data set of the hub has configurations and splits")
    return RowFile(path, format)
