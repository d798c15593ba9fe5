"""Copies beside a result file: the contents of responses' files, and the judge's prepared program.

A content lies there once and has its sha256 as its name, so that a row refers to contents, and a copy of the
result file and the folder is all that another machine needs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tirjudge.storage.durable_files import write_atomically
from tirjudge_environments.files.folder import MOST_BYTES, MOST_FILES, BadFolder, Folder, folder_of

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


def prepared_path(results: Path) -> Path:
    """Return the folder beside a result file with a copy of the prepared program of its judge."""
    return results.with_name(f"{results.name}.prepared")


def keep_prepared(results: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of the prepared program, and remove those of another one. Raises OSError."""
    folder = prepared_path(results)
    for kept in sorted(folder.rglob("*"), reverse=True):
        if kept.is_file() and kept.relative_to(folder).as_posix() not in files:
            kept.unlink()
        elif kept.is_dir() and not any(kept.iterdir()):
            kept.rmdir()
    for path, content in files.items():
        kept = folder / path
        if not (kept.is_file() and kept.read_bytes() == content):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, content)


class KeptFiles:
    """The folder `NAME.files` of the result file NAME."""

    def __init__(self, results: Path) -> None:
        self.path = results.with_name(f"{results.name}.files")

    def keep(self, folders: Iterable[Folder]) -> None:
        """Write contents that are not there yet; each appears whole. Raises OSError."""
        for folder in folders:
            for path, digest in folder.digests.items():
                kept = self.path / digest
                if not kept.is_file():
                    self.path.mkdir(exist_ok=True)
                    write_atomically(kept, folder.files[path])

    def folder(self, digests: Mapping[str, str]) -> Folder:
        """Return a folder by the sha256 of its files. Raises ValueError, in one line."""
        if len(digests) > MOST_FILES:
            raise ValueError(f"a folder of {len(digests)} files")
        files: dict[str, bytes] = {}
        left = MOST_BYTES
        for path, digest in digests.items():
            content = self._content(digest, left)
            left -= len(content)
            files[path] = content
        try:
            # The paths in a stranger's result file are as hostile as those in rows.
            return folder_of(files)
        except BadFolder as error:
            raise ValueError(str(error)) from None

    def _content(self, digest: str, most: int) -> bytes:
        if not _SHA256.fullmatch(digest):
            raise ValueError("a file without the sha256 of its content")
        place = self.path / digest
        try:
            if place.is_symlink() or place.stat().st_size > most or not place.is_file():
                raise ValueError(f"{place.name} in {self.path} is no file, or too large")
            content = place.read_bytes()
        except OSError:
            raise ValueError(f"the contents of its files are not in {self.path}") from None
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{place.name} in {self.path} has been changed")
        return content
