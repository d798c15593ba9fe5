"""Folders that rows give: mappings with contents and diffs, or folders, tars and zips beside the rows."""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from tirjudge_environments.files.folder import (
    MOST_BYTES,
    MOST_ENTRIES,
    MOST_FILES,
    NO_FILES,
    BadFolder,
    Folder,
    Taken,
    checked_path,
    shown_path,
    text_of_file,
    too_many,
)


def read_folder(value: Any, beside: Path | None, before: Folder = NO_FILES) -> Folder:
    """Return the folder that a row gives.

    Args:
        value: a mapping, the name of a folder or an archive, None for no files, or a Folder.
        beside: the folder that names are in; None where a row may name nothing, such as a row of a server.
        before: the files that a `diff` changes.

    Raises BadFolder.
    """
    if value is None or isinstance(value, Folder):
        return value or Folder()
    if isinstance(value, str):
        return _named(value, beside)
    if not isinstance(value, Mapping):
        raise BadFolder(f"files are a mapping from paths to contents, or a name, not {type(value).__name__}")
    # Tables of Arrow give every row the paths of all rows, and every file all of the keys.
    present = {path: _without_nulls(given) for path, given in value.items() if given is not None}
    if len(present) > MOST_FILES:
        raise BadFolder(too_many(len(present)))
    taken = Taken()
    for path, given in present.items():
        taken.add(path, _content(path, given, before))
    return taken.folder


def _without_nulls(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    return {kind: content for kind, content in given.items() if content is not None}


def _content(path: str, given: Any, before: Folder) -> bytes:
    kinds = ("text", "base64", "diff")
    if not isinstance(given, Mapping) or len(given) != 1 or (kind := next(iter(given))) not in kinds:
        raise BadFolder(f'{shown_path(path)} is no file: write {{"text": ...}}, "base64" or "diff"')
    content = given[kind]
    if not isinstance(content, str):
        raise BadFolder(f"{shown_path(path)}: {kind} must be a text")
    if kind == "base64":
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise BadFolder(f"{shown_path(path)}: not base64") from None
    try:
        return (content if kind == "text" else _patched(path, content, before)).encode()
    except UnicodeEncodeError:
        raise BadFolder(f"{shown_path(path)}: it holds a lone surrogate (half a character)") from None


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as diffs have lines: only a line feed ends it."""


def _patched(path: str, diff: str, before: Folder) -> str:
    """Return a file of `before` after a unified diff of it; raises BadFolder if the diff does not fit."""
    old = text_of_file(before.files.get(path, b""))
    if old is None:
        raise BadFolder(f"{shown_path(path)}: a diff of a file in prompt_files that is no text")
    lines, made, place = _LINE.findall(old), list[str](), 0
    given = _LINE.findall(diff)
    hunks = [number for number, line in enumerate(given) if _HUNK.match(line)]
    if not hunks:
        raise BadFolder(f"{shown_path(path)}: no unified diff (@@ -1,3 +1,4 @@)")
    for start, end in zip(hunks, [*hunks[1:], len(given)], strict=True):
        found = _HUNK.match(given[start])
        assert found is not None
        first, count = int(found[1]), int(found[2] or 1)
        begin = first - 1 if count else first
        if not place <= begin <= len(lines):
            raise BadFolder(f"{shown_path(path)}: the diff does not fit the file in prompt_files")
        made += lines[place:begin]
        taken, added = _hunk(given[start + 1 : end], lines[begin : begin + count])
        if taken != count or len(added) != int(found[3] or 1):
            raise BadFolder(f"{shown_path(path)}: the diff does not fit the file in prompt_files")
        made += added
        place = begin + count
    return "".join([*made, *lines[place:]])


def _hunk(given: Sequence[str], old: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many of the old lines a hunk takes, -1 if one differs, and the lines that it leaves."""
    taken, made, last = 0, list[str](), ""
    for line in given:
        mark, text = line[:1], line[1:]
        if mark == "\\":  # "\ No newline at end of file", about the line before
            if last == "+":
                made[-1] = made[-1].removesuffix("\n")
            continue
        if mark == "\n":  # an empty line whose leading space an editor took away
            mark, text = " ", "\n"
        if mark == "+":
            made.append(text)
        elif mark in (" ", "-") and taken < len(old):
            if old[taken].rstrip("\r\n") != text.rstrip("\r\n"):
                return -1, made
            made += [] if mark == "-" else [old[taken]]
            taken += 1
        else:
            # Behind the hunk: the head of another file's diff, or an empty line.
            break
        last = mark
    return taken, made


def _named(name: str, beside: Path | None) -> Folder:
    """Read a folder or an archive beside the file of the rows."""
    if beside is None:
        raise BadFolder(
            "a name of a folder or archive: only rows of a file may name one, so give the contents"
        )
    path = checked_path(name.rstrip("/") or name)
    place = beside
    for part in path.parts:
        place = place / part
        if place.is_symlink():
            raise BadFolder(f"{shown_path(name)} is behind a link, and links are not followed")
    try:
        if place.is_dir():
            return _of_folder(place)
        if place.exists() and not place.is_file():
            raise BadFolder("it is no folder, tar or zip")
        with place.open("rb") as file:
            start = file.read(512)
        compressed = start.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))
        if compressed or start[257:262] == b"ustar":
            return _of_tar(place)
        # Behind the tar: the end of a tar may be that of a zip in it.
        if zipfile.is_zipfile(place):
            return _of_zip(place)
    except BadFolder as error:
        raise BadFolder(f"{shown_path(name)}: {error}") from None
    except OSError as error:
        raise BadFolder(f"{shown_path(name)}: {error.strerror or error}") from None
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        ValueError,
        NotImplementedError,
        OverflowError,
        RuntimeError,
        lzma.LZMAError,
        zlib.error,
    ) as error:
        raise BadFolder(f"{shown_path(name)}: damaged ({' '.join(str(error).split())[:200]})") from None
    raise BadFolder(f"{shown_path(name)} is no folder, tar or zip")


def _of_folder(place: Path) -> Folder:
    taken, waiting, seen = Taken(), [place], 0
    while waiting:
        folder = waiting.pop()
        for entry in sorted(folder.iterdir()):
            seen += 1
            if seen > MOST_ENTRIES:
                raise BadFolder(too_many(seen))
            path = entry.relative_to(place).as_posix()
            state = entry.lstat()
            if stat.S_ISDIR(state.st_mode):
                checked_path(path)
                waiting.append(entry)
            elif stat.S_ISREG(state.st_mode):
                with open(os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                    taken.add(path, taken.read(file, state.st_size))
            else:
                raise BadFolder(f"{shown_path(path)} is a link or a device, which are not read")
    return taken.folder


def _of_zip(place: Path) -> Folder:
    taken = Taken()
    with zipfile.ZipFile(place) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES:
            raise BadFolder(too_many(len(entries)))
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise BadFolder(f"{shown_path(entry.filename)} is a link or a device, which are not read")
            if entry.flag_bits & 1:
                raise BadFolder(f"{shown_path(entry.filename)} is encrypted")
            if entry.is_dir():
                checked_path(entry.filename.rstrip("/"))
                continue
            with archive.open(entry) as file:
                taken.add(entry.filename, taken.read(file, entry.file_size))
    return taken.folder


def _of_tar(place: Path) -> Folder:
    taken = Taken()
    # Streamed, so that a bomb is left at the bound, with its rest still compressed.
    with (
        open(place, "rb") as file,
        _decompressed(file) as content,
        tarfile.open(fileobj=cast(Any, _Bounded(content)), mode="r|") as archive,
    ):
        for number, entry in enumerate(archive, 1):
            if number > MOST_ENTRIES:
                raise BadFolder(too_many(number))
            name = entry.name.removeprefix("./")
            if entry.isdir():
                if name.rstrip("/") not in ("", "."):
                    checked_path(name.rstrip("/"))
                continue
            if not entry.isreg():
                raise BadFolder(f"{shown_path(name)} is a link or a device, which are not read")
            part = archive.extractfile(entry)
            assert part is not None
            taken.add(name, taken.read(part, entry.size))
    return taken.folder


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    start = file.read(6)
    file.seek(0)
    for mark, opened in ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open)):
        if start.startswith(mark):
            return cast(IO[bytes], opened(file))
    return file


class _Bounded:
    """The start of a stream. Reading more than a folder and its headers can have raises BadFolder."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, MOST_BYTES + 4096 * MOST_ENTRIES

    def read(self, size: int = -1, /) -> bytes:
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise BadFolder(f"more than {MOST_BYTES:,} bytes of files")
        return content
