"""Folders of files that a judged response left behind: read from rows, shown in prompts, found by programs.

A folder maps relative paths to contents. A row gives it as a mapping from a path to `{"text": ...}`,
`{"base64": ...}` or `{"diff": ...}`, or as the name of a folder, tar or zip beside the file of the rows.
Whoever wrote it is hostile: names stay below the folder, links are not followed, and sizes are bounded before
anything is unpacked.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import difflib
import gzip
import hashlib
import json
import lzma
import os
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from pydantic import ConfigDict

from tirjudge_environments.quoting import cut_middle, quote_lines, starts_with

MOST_FILES = 1000
"""Files of one folder."""
MOST_BYTES = 4 << 20
"""Bytes of all files of one folder."""
MOST_DEPTH = 16
"""Names of a path."""
_MOST_NAME_BYTES, _MOST_PATH_BYTES = 200, 1000
_ENTRIES = 4 * MOST_FILES
"""Entries of an archive, folders and links included."""
_LISTED, _SHOWN = 40, 8
"""Files of a folder that a prompt lists, and files whose start or difference it shows."""
_PART, _WHOLE = 1200, 6000
"""Characters of one file, and of all files of a folder, that a prompt shows."""
_INDENT = "    "
_PLAIN_PATH = re.compile(r"[\w.@+-][\w./@+ -]{0,160}", re.ASCII)
_is_heading = starts_with(["[files of "])


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
        """The paths, and the contents that are texts."""
        return (*self.files, *filter(None, map(text_of_file, self.files.values())))


NO_FILES = Folder()


def text_of_file(content: bytes) -> str | None:
    """Return the content of a file if it is a text in UTF-8, else None."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


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
        raise BadFolder(_too_many(len(present)))
    taken = _Taken()
    for path, given in present.items():
        taken.add(path, _content(path, given, before))
    return taken.folder


def _without_nulls(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    return {kind: content for kind, content in given.items() if content is not None}


def folder_of(files: Mapping[str, bytes]) -> Folder:
    """Return a folder of these files; raises BadFolder for a path or a size that a folder cannot have."""
    taken = _Taken()
    for path, content in files.items():
        taken.add(path, content)
    return taken.folder


def _content(path: str, given: Any, before: Folder) -> bytes:
    kinds = ("text", "base64", "diff")
    if not isinstance(given, Mapping) or len(given) != 1 or (kind := next(iter(given))) not in kinds:
        raise BadFolder(f'{_shown_path(path)} is no file: write {{"text": ...}}, "base64" or "diff"')
    content = given[kind]
    if not isinstance(content, str):
        raise BadFolder(f"{_shown_path(path)}: {kind} must be a text")
    if kind == "base64":
        try:
            return base64.b64decode(content, validate=True)
        except (binascii.Error, ValueError):
            raise BadFolder(f"{_shown_path(path)}: not base64") from None
    try:
        return (content if kind == "text" else _patched(path, content, before)).encode()
    except UnicodeEncodeError:
        raise BadFolder(f"{_shown_path(path)}: it holds a lone surrogate (half a character)") from None


_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A line as diffs have lines: only a line feed ends it."""


def _patched(path: str, diff: str, before: Folder) -> str:
    """Return a file of `before` after a unified diff of it; raises BadFolder if the diff does not fit."""
    old = text_of_file(before.files.get(path, b""))
    if old is None:
        raise BadFolder(f"{_shown_path(path)}: a diff of a file in prompt_files that is no text")
    lines, made, place = _LINE.findall(old), list[str](), 0
    given = _LINE.findall(diff)
    hunks = [number for number, line in enumerate(given) if _HUNK.match(line)]
    if not hunks:
        raise BadFolder(f"{_shown_path(path)}: no unified diff (@@ -1,3 +1,4 @@)")
    for start, end in zip(hunks, [*hunks[1:], len(given)], strict=True):
        found = _HUNK.match(given[start])
        assert found is not None
        first, count = int(found[1]), int(found[2] or 1)
        begin = first - 1 if count else first
        if not place <= begin <= len(lines):
            raise BadFolder(f"{_shown_path(path)}: the diff does not fit the file in prompt_files")
        made += lines[place:begin]
        taken, added = _hunk(given[start + 1 : end], lines[begin : begin + count])
        if taken != count or len(added) != int(found[3] or 1):
            raise BadFolder(f"{_shown_path(path)}: the diff does not fit the file in prompt_files")
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
    path = _checked_path(name.rstrip("/") or name)
    place = beside
    for part in path.parts:
        place = place / part
        if place.is_symlink():
            raise BadFolder(f"{_shown_path(name)} is behind a link, and links are not followed")
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
        raise BadFolder(f"{_shown_path(name)}: {error}") from None
    except OSError as error:
        raise BadFolder(f"{_shown_path(name)}: {error.strerror or error}") from None
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
        raise BadFolder(f"{_shown_path(name)}: damaged ({' '.join(str(error).split())[:200]})") from None
    raise BadFolder(f"{_shown_path(name)} is no folder, tar or zip")


def _of_folder(place: Path) -> Folder:
    taken, waiting, seen = _Taken(), [place], 0
    while waiting:
        folder = waiting.pop()
        for entry in sorted(folder.iterdir()):
            seen += 1
            if seen > _ENTRIES:
                raise BadFolder(_too_many(seen))
            path = entry.relative_to(place).as_posix()
            state = entry.lstat()
            if stat.S_ISDIR(state.st_mode):
                _checked_path(path)
                waiting.append(entry)
            elif stat.S_ISREG(state.st_mode):
                with open(os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                    taken.add(path, taken.read(file, state.st_size))
            else:
                raise BadFolder(f"{_shown_path(path)} is a link or a device, which are not read")
    return taken.folder


def _of_zip(place: Path) -> Folder:
    taken = _Taken()
    with zipfile.ZipFile(place) as archive:
        entries = archive.infolist()
        if len(entries) > _ENTRIES:
            raise BadFolder(_too_many(len(entries)))
        for entry in entries:
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise BadFolder(f"{_shown_path(entry.filename)} is a link or a device, which are not read")
            if entry.flag_bits & 1:
                raise BadFolder(f"{_shown_path(entry.filename)} is encrypted")
            if entry.is_dir():
                _checked_path(entry.filename.rstrip("/"))
                continue
            with archive.open(entry) as file:
                taken.add(entry.filename, taken.read(file, entry.file_size))
    return taken.folder


def _of_tar(place: Path) -> Folder:
    taken = _Taken()
    # Streamed, so that a bomb is left at the bound, with its rest still compressed.
    with (
        open(place, "rb") as file,
        _decompressed(file) as content,
        tarfile.open(fileobj=cast(Any, _Bounded(content)), mode="r|") as archive,
    ):
        for number, entry in enumerate(archive, 1):
            if number > _ENTRIES:
                raise BadFolder(_too_many(number))
            name = entry.name.removeprefix("./")
            if entry.isdir():
                if name.rstrip("/") not in ("", "."):
                    _checked_path(name.rstrip("/"))
                continue
            if not entry.isreg():
                raise BadFolder(f"{_shown_path(name)} is a link or a device, which are not read")
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
        self._stream, self._left = stream, MOST_BYTES + 4096 * _ENTRIES

    def read(self, size: int = -1, /) -> bytes:
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise BadFolder(f"more than {MOST_BYTES:,} bytes of files")
        return content


@dataclass
class _Taken:
    """Files that are taken one after the other, up to the bounds of a folder."""

    files: dict[str, bytes] = field(default_factory=dict)
    size: int = 0
    names: dict[str, str] = field(default_factory=dict)
    """Paths, and the folders above them, by how a system without case and composed characters sees them."""

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
        checked = _checked_path(path)
        plain = checked.as_posix()
        if len(self.files) == MOST_FILES:
            raise BadFolder(_too_many(MOST_FILES + 1))
        self.size += len(content)
        if self.size > MOST_BYTES:
            raise BadFolder(f"more than {MOST_BYTES:,} bytes of files")
        above = [parent.as_posix() for parent in checked.parents if parent.parts]
        for name in (*above, plain):
            seen = unicodedata.normalize("NFC", name).casefold()
            if self.names.setdefault(seen, name) != name:
                raise BadFolder(
                    f"{_shown_path(name)} and {_shown_path(self.names[seen])} differ in case alone"
                )
        if plain in self.files or any(name in self.files for name in above) or self._is_folder(plain):
            raise BadFolder(f"{_shown_path(plain)} is given twice, or as a file and as a folder")
        self.files[plain] = content

    def _is_folder(self, plain: str) -> bool:
        return any(path.startswith(f"{plain}/") for path in self.files)


def _too_many(count: int) -> str:
    return f"{count:,} files or more; a folder has at most {MOST_FILES:,}"


def _checked_path(path: Any) -> PurePosixPath:
    """Return a path that stays below its folder; raises BadFolder for any other path."""
    if not isinstance(path, str):
        raise BadFolder(f"a path is a text, not {type(path).__name__}")
    parts = path.split("/")
    if not path or path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise BadFolder(f"{_shown_path(path)} is no path below the folder")
    if any(ord(mark) < 32 or ord(mark) == 127 for mark in path):
        raise BadFolder(f"{_shown_path(path)} has a control character")
    try:
        longest, size = max(len(part.encode()) for part in parts), len(path.encode())
    except UnicodeEncodeError:
        raise BadFolder(f"{_shown_path(path)} holds half a character") from None
    if len(parts) > MOST_DEPTH or longest > _MOST_NAME_BYTES or size > _MOST_PATH_BYTES:
        raise BadFolder(
            f"{_shown_path(path)}: a path has at most {MOST_DEPTH} names of {_MOST_NAME_BYTES} bytes"
        )
    return PurePosixPath(path)


def _shown_path(path: Any) -> str:
    """Return a path in one line, in which nothing of it reads as our own words."""
    text = str(path)
    return text if _PLAIN_PATH.fullmatch(text) else json.dumps(cut_middle(text, 60))


def unlisted(text: str) -> str:
    """Return a response in which no line reads as the heading of a listing."""
    return quote_lines(text, _is_heading)


def listing(folder: Folder, of: str, before: Folder = NO_FILES) -> str:
    """Return the files of a folder as a judge is shown them: paths, sizes, starts, and what was changed.

    Args:
        folder: the files.
        of: whose files they are, for the heading.
        before: the files that the response began with; of a file that it changed, the difference is shown.
    """
    size = sum(map(len, folder.files.values()))
    same = [path for path in folder.files if before.files.get(path) == folder.files[path]]
    gone = sorted(before.files.keys() - folder.files.keys())
    own = sorted(folder.files.keys() - set(same))
    lines = [f"[files of {of}: {_counted(len(folder.files))}, {size:,} bytes]"]
    left, parts = _WHOLE, 0
    for path in own[:_LISTED]:
        content, old = folder.files[path], before.files.get(path)
        lines.append(f"{_shown_path(path)}, {len(content):,} bytes{', changed' * (old is not None)}")
        shown = _excerpt(content, old) if parts < _SHOWN and left > 0 else None
        if shown is None:
            lines[-1] += ", not shown" if text_of_file(content) is not None else ", no text"
        elif shown:
            shown = cut_middle(shown, min(_PART, left))
            left, parts = left - len(shown), parts + 1
            lines += [f"{_INDENT}{line}" for line in shown.splitlines()]
    if len(own) > _LISTED:
        lines.append(f"... {_counted(len(own) - _LISTED)} left out ...")
    if same:
        lines.append(f"{_counted(len(same))} unchanged")
    lines += [f"{_shown_path(path)}, deleted" for path in gone[:_LISTED]]
    if len(gone) > _LISTED:
        lines.append(f"... {_counted(len(gone) - _LISTED)} deleted as well ...")
    return "\n".join(lines)


def _counted(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"


def _excerpt(content: bytes, old: bytes | None) -> str | None:
    """Return a text, or what changed in it; None for other content."""
    text, earlier = text_of_file(content), text_of_file(old or b"")
    if text is None:
        return None
    if old is None or earlier is None:
        return text
    if len(text) + len(earlier) > 200_000:  # difflib takes quadratic time
        return None
    diff = difflib.unified_diff(earlier.splitlines(), text.splitlines(), lineterm="", n=2)
    return "\n".join(line for line in diff if not line.startswith(("--- ", "+++ ")))


def placed(bindings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the variables of a program with the names of folders in place of folders, and all their files.

    A folder has the name of its variable: the variable `files_a` has the value "files_a", and in the working
    folder of the program lies the folder `files_a`. A list has the
    names of its folders.
    """
    files: dict[str, bytes] = {}
    names: dict[int, str] = {}

    def place(name: str, value: Any) -> Any:
        if isinstance(value, Folder):
            if id(value) in names:
                return names[id(value)]
            names[id(value)] = name
            files[f"{name}/"] = b""
            files.update((f"{name}/{path}", content) for path, content in value.files.items())
            return name
        if isinstance(value, list) and any(isinstance(one, Folder) for one in value):
            return [place(f"{name}/{number}", one) for number, one in enumerate(value)]
        return value

    return {name: place(name, value) for name, value in bindings.items()}, files
