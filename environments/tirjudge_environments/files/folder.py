"""Folders: files by their paths, with the bounds of their number, size and names."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import merge
from pathlib import PurePosixPath
from typing import IO, Any

from pydantic import ConfigDict

from tirjudge_environments.files.kinds import cells_of, is_notebook, kind_of
from tirjudge_environments.quoting import cut_middle

MOST_FILES = 5000
"""Files of one folder."""
MOST_BYTES = 64 << 20
"""Bytes of all files of one folder."""
MOST_DEPTH = 16
"""Names of a path."""
_MOST_NAME_BYTES, _MOST_PATH_BYTES = 200, 1000
MOST_ENTRIES = 2 * MOST_FILES
"""Entries of an archive, folders and links included."""
_WHOLE_TEXT = 1 << 20
"""Bytes of a text that is kept whole for quotations."""
_MOST_QUOTABLE = 4 << 20
"""Most bytes kept of a longer text."""
_AROUND = 200
"""Bytes kept around each tag or fence of a longer text."""
_MARKS = (b"<", b"```")
_PLAIN_PATH = re.compile(r"[\w.@+-][\w./@+ -]{0,160}", re.ASCII)


class BadFolder(ValueError):
    """A folder that cannot be used; the message is one line without the name of the folder."""


@dataclass(frozen=True)
class Folder:
    """Files by their paths, relative and with slashes."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    files: Mapping[str, bytes] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Folder({len(self.files)} files, {self.digest})"

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by its path, in order of the paths."""
        return {path: hashlib.sha256(self.files[path]).hexdigest() for path in sorted(self.files)}

    @cached_property
    def digest(self) -> str:
        """A digest of all paths and contents."""
        return hashlib.sha256(json.dumps(list(self.digests.items())).encode()).hexdigest()

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The paths, and the contents that are texts; of texts of more than 1 MiB, what is near tags.

        Notebooks are there twice: as they are, and as the cells that a judge is shown.
        """
        cells = (cells_of(content) for path, content in self.files.items() if is_notebook(path))
        return (*self.files, *filter(None, map(_quotable, self.files.values())), *filter(None, cells))

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return {}

    def text(self, path: str) -> str | None:
        """Return a file's content; None if there is no such file or it is not UTF-8."""
        return text_of_file(self.files[path]) if path in self.files else None

    def kind(self, path: str) -> str:
        """Return the kind of a file, see `kinds.kind_of`."""
        if path not in self._kinds:
            self._kinds[path] = kind_of(path, self.files[path])
        return self._kinds[path]


NO_FILES = Folder()


def text_of_file(content: bytes) -> str | None:
    """Return the content of a file if it is a text in UTF-8, else None."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def encoded(path: str, text: str) -> bytes:
    """Return the content of a file with this text."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadFolder(f"{shown_path(path)}: it holds a lone surrogate (half a character)") from None


def _quotable(content: bytes) -> str | None:
    """Return the parts of a file from which a judge could quote a tag or a fence; None if it is no text."""
    if len(content) <= _WHOLE_TEXT:
        return text_of_file(content)
    if b"\0" in content:
        return None
    parts = list[bytes]()
    end = left = 0
    for place in merge(*(_places(content, mark) for mark in _MARKS)):
        start, end = max(end, place - _AROUND), max(end, place + _AROUND)
        parts.append(content[start:end])
        left += end - start
        if left > _MOST_QUOTABLE:
            break
    return b"".join(parts).decode(errors="replace")


def _places(content: bytes, mark: bytes) -> Iterator[int]:
    place = content.find(mark)
    while place >= 0:
        yield place
        # Marks up to there are among the bytes around this one, with some of their own.
        place = content.find(mark, place + _AROUND // 2)


def folder_of(files: Mapping[str, bytes]) -> Folder:
    """Return a folder of these files; raises BadFolder for a path or a size that a folder cannot have."""
    taken = Taken()
    for path, content in files.items():
        taken.add(path, content)
    return taken.folder


@dataclass
class Taken:
    """Files that are taken one after the other, up to the bounds of a folder."""

    files: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    names: dict[str, str] = field(default_factory=dict)
    """Paths and parent folders by their NFC, case-folded form, in which two of them must not be equal."""
    folders: set[str] = field(default_factory=set)
    """The parent folders."""

    @property
    def folder(self) -> Folder:
        return Folder(self.files)

    def read(self, file: IO[bytes], declared: int) -> bytes:
        """Return the content of a file, of which no more is read than a folder may have."""
        left = MOST_BYTES - self.size
        content = file.read(left + 1) if declared <= left else b""
        if declared > left or len(content) > left:
            raise BadFolder(f"more than {MOST_BYTES:,} bytes of files")
        return content

    def add(self, path: str, content: bytes) -> None:
        """Take a file; raises BadFolder for an unusable path, and beyond the bounds of a folder."""
        checked = checked_path(path)
        plain = checked.as_posix()
        if len(self.files) == MOST_FILES:
            raise BadFolder(too_many(MOST_FILES + 1))
        self.size += len(content)
        if self.size > MOST_BYTES:
            raise BadFolder(f"more than {MOST_BYTES:,} bytes of files")
        above = [parent.as_posix() for parent in checked.parents if parent.parts]
        for name in (*above, plain):
            seen = unicodedata.normalize("NFC", name).casefold()
            if self.names.setdefault(seen, name) != name:
                raise BadFolder(f"{shown_path(name)} and {shown_path(self.names[seen])} differ in case alone")
        if plain in self.files or any(name in self.files for name in above) or plain in self.folders:
            raise BadFolder(f"{shown_path(plain)} is given twice, or as a file and as a folder")
        self.files[plain] = content
        self.folders.update(above)


def too_many(count: int) -> str:
    return f"{count:,} files or more; a folder has at most {MOST_FILES:,}"


def checked_path(path: Any) -> PurePosixPath:
    """Return a path that stays below its folder; raises BadFolder for any other path."""
    if not isinstance(path, str):
        raise BadFolder(f"a path is a text, not {type(path).__name__}")
    parts = path.split("/")
    if not path or path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise BadFolder(f"{shown_path(path)} is no path below the folder")
    # Those of Latin-1 too, which terminals obey, and the separators that end a line elsewhere.
    if any(unicodedata.category(mark) in ("Cc", "Zl", "Zp") for mark in path):
        raise BadFolder(f"{shown_path(path)} has a control character")
    try:
        longest, size = max(len(part.encode()) for part in parts), len(path.encode())
    except UnicodeEncodeError:
        raise BadFolder(f"{shown_path(path)} holds half a character") from None
    if len(parts) > MOST_DEPTH or longest > _MOST_NAME_BYTES or size > _MOST_PATH_BYTES:
        raise BadFolder(
            f"{shown_path(path)}: a path has at most {MOST_DEPTH} names of {_MOST_NAME_BYTES} bytes"
        )
    return PurePosixPath(path)


def shown_path(path: Any) -> str:
    """Return a path in one line, in which nothing of it reads as our own words."""
    text = str(path)
    return text if _PLAIN_PATH.fullmatch(text) else json.dumps(cut_middle(text, 60))
