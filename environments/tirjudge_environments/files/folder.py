"""Folders: files by their paths, with the bounds of their number, size and names."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Any, ClassVar

from pydantic import ConfigDict

from tirjudge_environments.quoting import cut_middle, with_look_alikes

MOST_FILES = 5000
"""Files of one folder."""
MOST_BYTES = 64 << 20
"""Bytes of all files of one folder."""
MOST_DEPTH = 16
"""Names of a path."""
_MOST_NAME_BYTES, _MOST_PATH_BYTES = 200, 1000
MOST_ENTRIES = 2 * MOST_FILES
"""Entries of an archive, folders and links included."""
_PLAIN_PATH = re.compile(r"[\w.@+-][\w./@+ -]{0,160}", re.ASCII)


class BadFolder(ValueError):
    """A folder that cannot be used; the message is one line without the name of the folder."""


@dataclass(frozen=True)
class Folder:
    """Files by their paths, relative and with slashes."""

    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    files: Mapping[str, bytes] = field(default_factory=dict)
    marks: ClassVar[tuple[str, ...]] = ()
    """Tokens that no shown text of the folder holds, see `shown`."""

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

    def shown(self, marks: tuple[str, ...]) -> Folder:
        """Return the folder with look-alikes in its listings and texts (see `with_look_alikes`).

        The contents stay as they are: `files` is for programs, and not for prompts.
        """
        other = copy(self)
        other.__dict__["marks"] = marks
        return other

    def text(self, path: str) -> str | None:
        """Return a file's content; None if there is no such file or it is not UTF-8."""
        text = text_of_file(self.files[path]) if path in self.files else None
        return None if text is None else with_look_alikes(text, self.marks)


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
